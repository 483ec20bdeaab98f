"""Which weights and which search do best on validation."""
