"""Checks of one sentence."""
