"""Measurements, each a command of its own; the tests share their models."""
