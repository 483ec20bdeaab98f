"""Tokenized text on disk, mapped into memory."""
