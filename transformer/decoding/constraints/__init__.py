"""Phrases that must or must not occur in a translation."""
