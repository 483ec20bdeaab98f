"""Commands that read a corpus."""
