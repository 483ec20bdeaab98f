"""Attention: the formula, its kernels, masks, biases and sparse patterns."""
