"""Scores to what people read: tables, Markdown, HTML."""
