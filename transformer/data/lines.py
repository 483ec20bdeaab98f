"""Reads lines of UTF-8 text, packed or not, and tells whether a file is what it was.

Does not know what a line holds. A line ends at \\n or \\r\\n and nowhere else: U+2028, \\x85 or a
lone \\r are text.
"""

import gzip
import hashlib
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path

from transformer.data.cache import remembered
from transformer.errors import InputError, MissingFile, did_you_mean

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A file this large (in bytes, a quarter of a second to hash) is not read again at each start.
_LARGE = 1 << 28
# A change within the same tick of the file system's clock would not show; ticks are far shorter.
_SETTLED_SECONDS = 5.0
_DIGEST = re.compile("[0-9a-f]{64}")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, with or without byte order mark, also gzipped.

    Raises:
        InputError: the file is missing, a folder, no UTF-8, or a damaged gzip file.
    """
    with _opened(path) as raw:
        yield from unpacked_lines(raw, path) if path.suffix == ".gz" else decoded_lines(raw, path)


def unpacked_lines(packed: BufferedReader, name: object) -> Iterator[str]:
    """Yield the lines of an open gzip file.

    Raises:
        InputError: it is damaged or no UTF-8; the message begins with ``name``.
    """
    number = 0
    try:
        for line in decoded_lines(gzip.GzipFile(fileobj=packed), name):
            number += 1
            yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{name}: damaged gzip file after line {number} ({error}); fetch or pack it again"
        ) from error


def decoded_lines(file: Iterable[bytes], name: object, start: int = 1) -> Iterator[str]:
    """Yield lines of bytes as text, without their ends; ``start`` is the number of the first.

    Raises:
        InputError: a line is no UTF-8; the message begins with ``name`` and its number.
    """
    for number, line in enumerate(file, start):
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}:{number}: byte {error.start + 1} of the line is not UTF-8; "
                "convert the text first (iconv -t UTF-8)"
            ) from error


def is_large(path: Path) -> bool:
    """Whether a file is too large to be read as a whole at each start."""
    try:
        return path.stat().st_size >= _LARGE
    except OSError:
        return False


def file_digest(path: Path, cache: Path | None = None) -> bytes:
    """Return the sha256 of a file's bytes.

    With a cache, that of a large file is computed once, and believed as long as the file keeps
    its path, size, inode and both times (of modification and of change: the second moves with
    every write, also where the first is set back afterwards). A file changed within the last
    seconds is hashed each time.

    Raises:
        InputError: the file is missing or cannot be read, or what the cache remembers is damaged.
    """
    with _opened(path) as file:

        def hashed() -> str:
            return hashlib.file_digest(file, "sha256").hexdigest()

        state = os.fstat(file.fileno())
        if (
            cache is None
            or state.st_size < _LARGE
            or time.time() - state.st_ctime < (_SETTLED_SECONDS)
        ):
            return bytes.fromhex(hashed())
        seen = (state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
        known = remembered(cache, f"sha256 of {path.resolve()} {seen}", hashed)
    if not _DIGEST.fullmatch(known):
        raise InputError(f"{cache / 'answers'}: damaged; delete it, it will be made anew")
    return bytes.fromhex(known)


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise MissingFile(f"{path}: no such file{_nearest(path)}") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a folder; give a file in it") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def refuse_missing(paths: Iterable[Path]) -> None:
    """Refuse files that are not there, all at once.

    Raises:
        MissingFile: there is one.
    """
    missing = dict.fromkeys(path for path in paths if not path.exists())
    if missing:
        raise MissingFile("; ".join(f"{path}: no such file{_nearest(path)}" for path in missing))


def _nearest(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} (seen from {Path.cwd()})"
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        names = []
    return did_you_mean(path.name, names) or f" (seen from {Path.cwd()})"
