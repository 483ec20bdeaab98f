"""Logits to subwords to text."""
