"""Marian models: their config, weights and vocabulary, as ours and back."""
