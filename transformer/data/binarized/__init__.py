"""Text to token ids on disk (Arrow files, mapped into memory)."""
