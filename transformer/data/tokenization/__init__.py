"""Sentences to subword ids and back."""
