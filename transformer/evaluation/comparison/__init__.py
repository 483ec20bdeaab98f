"""Whether a system is better than another, and where."""
