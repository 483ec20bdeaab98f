"""Errors, atomic file writes, typed schema, escaping: known by all, knows nobody."""
