"""The checkpoint file: where it lies, what it holds, how it is checked."""
