"""Commands that read lines and write lines."""
