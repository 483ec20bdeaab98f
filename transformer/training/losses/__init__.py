"""Losses of a batch."""
