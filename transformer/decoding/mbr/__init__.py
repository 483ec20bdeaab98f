"""Minimum Bayes risk decoding."""
