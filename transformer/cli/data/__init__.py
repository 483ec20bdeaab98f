"""Verbs that read a corpus."""
