"""The formats of other programs."""
