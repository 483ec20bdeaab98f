"""Pairs that are repaired, kept or left out."""
