"""Several processes: whole weights on each process, sharded weights."""
