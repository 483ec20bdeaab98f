"""Batches to logits; read in the paper's order, from embedding.py to transformer.py."""
