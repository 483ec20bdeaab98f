"""Corpora to Lightning data modules: one for each kind of training text."""
