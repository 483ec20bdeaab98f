"""The checkpoint file: finding, reading, checking and writing it."""
