"""Lightning callbacks, and the log of metrics."""
