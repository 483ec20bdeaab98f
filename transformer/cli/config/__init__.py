"""Configs: composed, explained, listed."""
