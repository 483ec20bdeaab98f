"""Files of several formats: their texts with marks, and the same file with other texts."""
