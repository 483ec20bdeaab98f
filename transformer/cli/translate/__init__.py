"""Verbs that read lines and write lines."""
