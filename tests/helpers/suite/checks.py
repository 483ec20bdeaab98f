"""Whether the types and shapes in the signatures are checked, and in how many calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any

import jaxtyping
from jaxtyping import _decorator, config

CALLS = 100
"""Of each function, in each test; further ones are alike, and a check takes 50 microseconds."""

_decorate = jaxtyping.jaxtyped
_tests = 0


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
    calls = test = 0

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal checked, calls, test
        if config.jaxtyping_disable:
            return function(*arguments, **keywords)
        if test != _tests:
            test, calls = _tests, 0
        if calls >= CALLS:
            return function(*arguments, **keywords)
        calls += 1
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
