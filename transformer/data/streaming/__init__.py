"""Training text that is read again in each epoch, without a copy on disk."""
