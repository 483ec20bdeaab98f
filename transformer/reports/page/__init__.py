"""A run, or several, as one self-contained HTML page."""

REPORT = "report"
"""Name of the page and of its values in a run directory, without ``.html`` and ``.json``."""
