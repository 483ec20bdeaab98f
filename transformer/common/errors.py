"""Exceptions with messages for the user, and parts of these messages."""

import difflib
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class InputError(Exception):
    """The input or the command is wrong, and the user can correct it.

    The message is one line: what is wrong, where, and what to do. The exit code is 2.
    """


class MissingFile(InputError):
    """A file that the user or the config of a run names does not exist."""


class BadSource(InputError):
    """The file of a ``source`` cannot be read."""

    def __init__(self, message: str, source: str = "") -> None:
        super().__init__(message)
        self.source = source


@contextmanager
def errors_name(file: Path | str) -> Iterator[None]:
    """Begin the message of an InputError with a file, or a line of it, unless it names that."""
    try:
        yield
    except InputError as error:
        if re.search(rf"(?<![\w.-]){re.escape(str(file))}(?![\w-])", str(error)):
            raise
        raise InputError(f"{file}: {error}") from error


_DAMAGE: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    EOFError,
    MemoryError,
    zlib.error,
    zipfile.BadZipFile,
)


@contextmanager
def readable(name: object, *errors: type[Exception]) -> Iterator[None]:
    """Turn an error of a damaged file, or one of these, into an InputError that names the file."""
    expected = _DAMAGE + errors
    try:
        yield
    except expected as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{name} cannot be read: {reason}") from error


ALSO = "; also "

_LIMIT = 10


def raise_objections(objections: Iterable[str]) -> None:
    """Raise all objections as one InputError; nothing happens without one."""
    reasons = list(dict.fromkeys(objections))
    if not reasons:
        return
    message = ALSO.join(reasons[:_LIMIT])
    if len(reasons) > _LIMIT:
        message += f"; and {len(reasons) - _LIMIT} more"
    raise InputError(message)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `` (did you mean NAME?)`` with the nearest name of this similarity, or nothing."""
    candidates = [candidate for candidate in known if candidate != name]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=cutoff)
    return f" (did you mean {near[0]}?)" if near else ""


_NAMES = 20


def some_of(names: Sequence[str], separator: str = ", ") -> str:
    """The first names of a list that may be long; an ellipsis stands for the others."""
    shown = list(names[:_NAMES])
    if len(names) > _NAMES:
        shown.append("…")
    return separator.join(shown)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: torch, CUDA and their libraries have various errors for it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    texts = ("out of memory", "can't allocate memory", "_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


class Interrupted(Exception):
    """The user or the system stopped the work; ``code`` is 128 plus the number of the signal."""

    def __init__(self, message: str, code: int = 130) -> None:
        super().__init__(message)
        self.code = code


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: unfinished files are removed."""


def code_of_stop(stop: KeyboardInterrupt) -> int:
    """The exit code after Ctrl-C or SIGTERM."""
    return 143 if isinstance(stop, Terminated) else 130


class AnotherRankFailed(Exception):
    """This process ends because of another rank, which has reported the error; its exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code
