"""Several processes: replicated weights, sharded weights."""
