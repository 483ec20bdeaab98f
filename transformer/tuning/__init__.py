"""Which weights of a run, and which search, translate its validation set best."""
