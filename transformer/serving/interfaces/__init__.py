"""The interfaces that clients of other services speak."""
