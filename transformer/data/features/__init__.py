"""Files to sequences of vectors."""
