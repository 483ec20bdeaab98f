"""The model on a given translation: its score, its attention, its alignment."""
