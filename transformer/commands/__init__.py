"""Settings of a command to its results: one library function a command, which prints nothing."""
