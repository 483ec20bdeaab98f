"""Encoded pairs to batches, in an order that can be resumed."""
