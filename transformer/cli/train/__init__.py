"""Verbs that make or change a model."""
