"""Gradients, optimizer, schedule, and what happens when training diverges."""
