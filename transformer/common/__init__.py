"""Errors, atomic file writes, typed schema, escaping: every folder imports it; it imports none."""
