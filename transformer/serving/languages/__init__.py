"""Languages: their directions, names and detection, and the sentences of a text."""
