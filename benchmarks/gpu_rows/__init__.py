"""What benchmarks/gpu.py measures on a GPU: a file for each theme, and how rows are kept."""
