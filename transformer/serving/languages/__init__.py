"""Languages: their directions and detection, and the sentences of a text."""
