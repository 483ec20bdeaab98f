"""A service of trained models over HTTP."""
