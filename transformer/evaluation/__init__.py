"""Text to scores."""
