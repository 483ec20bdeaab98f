"""Disturbances of text: for `stress`, and for the augmentation of training text."""
