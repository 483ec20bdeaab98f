"""Clean text to noisy text: for `stress`, and for the augmentation of training text."""
