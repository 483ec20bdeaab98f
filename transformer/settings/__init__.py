"""Every setting as frozen dataclasses, without torch."""
