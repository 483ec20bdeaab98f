"""The checkpoint file and the run directory: finding, reading, checking and writing."""
