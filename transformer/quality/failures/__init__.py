"""Failures of outputs that need no reference to be seen: flags, their thresholds, and a retry."""
