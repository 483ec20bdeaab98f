"""The parts of a layer beside attention, and their first weights."""
