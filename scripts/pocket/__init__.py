"""The generator of the pocket corpus; the package holds only the text that it makes."""
