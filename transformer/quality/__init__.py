"""Text to faults: of a corpus, which is examined and cleaned, and of the outputs of a model."""
