"""The exceptions that speak to the user, and words for them; they do not know who catches them."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class InputError(Exception):
    """The input or the call is wrong, and the user can mend it.

    The message is one line that says what is wrong, where, and what to do. The command line
    prints it without a traceback and exits with code 2.
    """


class MissingFile(InputError):
    """A file that the user, or the config of a run, names is not there."""


@contextmanager
def errors_name(file: Path) -> Iterator[None]:
    """Let an InputError name the file whose values it is about.

    Raises:
        InputError: The same, with the file before it.
    """
    try:
        yield
    except InputError as error:
        if str(file) in str(error):
            raise
        raise InputError(f"{file}: {error}") from error


ALSO = "; also "
"""Between the objections of one message."""

_MOST = 10
"""Objections that one message has room for."""


def refuse(objections: Iterable[str]) -> None:
    """Raise all objections as one, so that whoever mends one does not meet the next.

    Raises:
        InputError: There is any.
    """
    if reasons := list(dict.fromkeys(objections)):
        more = len(reasons) - _MOST
        raise InputError(ALSO.join(reasons[:_MOST]) + (f"; and {more} more" if more > 0 else ""))


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`` (did you mean NAME?)`` with the nearest other name; empty where none is near.

    Args:
        name: What is unknown.
        known: What it could be.
        cutoff: How much has to be alike, from 0 to 1 (``difflib``).
    """
    others = [other for other in known if other != name]
    near = difflib.get_close_matches(name, others, n=1, cutoff=cutoff)
    return f" (did you mean {near[0]}?)" if near else ""


def how_to_install(extra: str) -> str:
    """What to do where a package of an extra is missing; the project is not on PyPI."""
    return f"pip install -e '.[{extra}]' in the checkout"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory did not suffice: torch, CUDA and the libraries under them say so variously."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _NO_MEMORY)


_NO_MEMORY = ("out of memory", "can't allocate memory", "_ALLOC_FAILED")


class Interrupted(Exception):
    """The user or the system stopped the work; the message says in one line how to go on.

    Attributes:
        code: The exit code: 128 and the number of the signal, as a shell says.
    """

    def __init__(self, message: str, code: int = 130) -> None:
        super().__init__(message)
        self.code = code


class AnotherRankFailed(Exception):
    """This process cannot go on, and the one that knows why has reported it.

    The message may be empty.

    Attributes:
        code: The exit code, that of the other; 1 where it was killed, or nobody knows.
    """

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code
