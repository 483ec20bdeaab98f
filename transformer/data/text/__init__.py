"""Files of text to sentence pairs."""
