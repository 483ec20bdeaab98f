"""Logits to loss to step."""
