"""Exceptions with messages for the user, and parts of these messages."""

import difflib
import re
import shlex
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path


class InputError(Exception):
    """The input or the command is wrong, and the user can correct it.

    The message is one line: what is wrong, where, and what to do. The exit code is 2.
    """


class MissingFile(InputError):
    """A file that the user or the config of a run names does not exist."""


class MissingPackage(InputError):
    """A package of an extra is not installed."""


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

_DISTRIBUTIONS = {"multipart": "python-multipart", "prometheus_client": "prometheus-client"}
"""Packages that pip knows by another name than ``import``."""

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


def how_to_install(extra: str) -> str:
    """Return the commands that install what is missing of an extra, from a wheel and a checkout.

    The project is not on PyPI, so that an extra can be named in a checkout alone.
    """
    checkout = f"pip install -e '.[{extra}]' in the checkout"
    missing = _missing_requirements(extra)
    return f"{shlex.join(['pip', 'install', *missing])}, or {checkout}" if missing else checkout


def _missing_requirements(extra: str) -> list[str]:
    """The requirements of an extra that are not installed, such as ``lxml>=6.0``."""
    # Reading metadata is for errors alone: its import would slow every start.
    from importlib.metadata import PackageNotFoundError, distribution, requires

    missing = []
    with suppress(PackageNotFoundError):
        for requirement in requires("transformer") or ():
            wanted, _, marker = requirement.partition(";")
            if re.search(rf"extra == ['\"]{extra}['\"]", marker):
                try:
                    distribution(re.split(r"[^\w.-]", wanted)[0])
                except PackageNotFoundError:
                    missing.append(wanted.strip())
    return missing


def require_package(package: str, who: str, extra: str) -> None:
    """Raise MissingPackage unless a package of an extra is installed."""
    if find_spec(package) is None:
        name = _DISTRIBUTIONS.get(package, package)
        raise MissingPackage(f"{who} needs {name}: {how_to_install(extra)}")


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


class AnotherRankFailed(Exception):
    """This process ends because of another rank, which has reported the error; its exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code
