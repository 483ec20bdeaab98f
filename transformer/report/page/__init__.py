"""A run, or several, as one self-contained HTML page."""
