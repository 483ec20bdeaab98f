"""Checks of pairs against other pairs."""
