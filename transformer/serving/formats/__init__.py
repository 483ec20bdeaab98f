"""Texts with formatting: HTML, XML and documents, translated with their marks."""
