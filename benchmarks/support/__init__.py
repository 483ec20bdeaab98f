"""What several benchmarks share; none of these files is a command."""
