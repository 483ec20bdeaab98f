"""Measurements on a GPU, and the cost of training on paper: ``python -m benchmarks.gpu``."""
