"""Families of models of transformers: their config, weights and vocabulary as ours, and back."""
