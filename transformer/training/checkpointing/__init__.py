"""Checkpoints of a run: written, averaged, restored."""
