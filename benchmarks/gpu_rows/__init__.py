"""What benchmarks/gpu.py measures on a card: a file for each theme, and how rows are kept."""
