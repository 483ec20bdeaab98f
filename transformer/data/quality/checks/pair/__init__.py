"""Checks of a sentence and its translation."""
