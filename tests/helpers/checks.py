"""Whether the types and shapes in the signatures are checked."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import config


@contextmanager
def no_checks() -> Iterator[None]:
    """Check none: for what torch traces, and for thousands of calls that are alike."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)
