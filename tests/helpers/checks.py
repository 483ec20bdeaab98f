"""Switches off the checks of shapes and types that tests run with."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import config


@contextmanager
def no_checks() -> Iterator[None]:
    """Check no call; torch would trace the checks, too."""
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)
