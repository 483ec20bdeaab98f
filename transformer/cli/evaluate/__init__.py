"""Verbs that score a model."""
