"""Where a corpus comes from, and how it is split."""
