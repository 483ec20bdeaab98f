"""Faults of parallel text: found, reported and left out, before any training."""
