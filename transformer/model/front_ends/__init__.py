"""Vectors of a source to hidden states."""
