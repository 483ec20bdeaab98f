"""Logits to pieces to text."""
