"""Commands that make or change a model."""
