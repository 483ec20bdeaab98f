"""Whether the types and shapes in the signatures are checked, and in which calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import CodeType, FunctionType
from typing import Any

import jaxtyping
from jaxtyping import _decorator, config

CALLS = 10
"""The first of each function, in each test; a check takes 50 microseconds, and most are alike.

Of the later calls those are checked whose number is a power of two.
"""

_decorate = jaxtyping.jaxtyped
_tests = 0
_counts: dict[CodeType, list[int]] = {}
"""The test and its calls of a function so far; functions within a function count together."""


def check_first_calls() -> None:
    """Let jaxtyping's import hook check the first calls alone; before that is installed."""
    jaxtyping.jaxtyped = _decorator.jaxtyped = _checking_first_calls  # type: ignore[assignment]


def begin_test() -> None:
    """Let all functions be checked again."""
    global _tests
    _tests += 1


def _checking_first_calls(function: Any = _decorator._sentinel, **typechecker: Any) -> Any:
    if not isinstance(function, FunctionType):
        return _decorate(function, **typechecker)
    checked: Callable[..., Any] | None = None
    count = _counts.setdefault(function.__code__, [0, 0])

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal checked
        if config.jaxtyping_disable:
            return function(*arguments, **keywords)
        if count[0] != _tests:
            count[:] = _tests, 0
        count[1] += 1
        if count[1] > CALLS and count[1].bit_count() > 1:
            return function(*arguments, **keywords)
        # Most functions of the package are never called in a process of tests.
        checked = checked or _decorate(function, **typechecker)
        return checked(*arguments, **keywords)

    return call


@contextmanager
def no_checks() -> Iterator[None]:
    """Check none: for what torch traces."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)
