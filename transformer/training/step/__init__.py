"""One update."""
