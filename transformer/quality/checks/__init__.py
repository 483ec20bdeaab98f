"""One check of the text a file."""
