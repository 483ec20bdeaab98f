"""Commands that score a model."""
