"""Reads lines of UTF-8 text, which end at \\n or \\r\\n only, and detects changes of files."""

import gzip
import hashlib
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from itertools import count
from pathlib import Path

import numpy as np

from transformer.common.errors import InputError, MissingFile, did_you_mean
from transformer.common.files import remembered

MAX_LINE = 1_000_000
"""Bytes of the longest line if there is no other limit (``data.max_line``)."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A file of this many bytes (a quarter of a second to hash) is not read again at each start.
_LARGE = 1 << 28
# A change within one tick of the file system's clock would not show; ticks are far shorter.
_SETTLED_SECONDS = 5.0


def read_lines(path: Path, max_line: int | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, with or without byte order mark, also gzipped.

    ``max_line`` is the limit in bytes (``data.max_line``); None: MAX_LINE. Raises InputError if the
    file is missing, unreadable, damaged or not UTF-8, or a line is too long.
    """
    with opened_file(path) as raw:
        file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        yield from decoded_lines(raw_lines(file, path, max_line), path)


def raw_lines(
    file: BufferedReader | gzip.GzipFile, name: object, max_line: int | None = None, start: int = 1
) -> Iterator[bytes]:
    """Yield the lines of an open file with their ends; ``start`` is the number of the first.

    Never holds more than ``max_line`` bytes. Raises InputError, which begins with ``name``, if the
    file cannot be read, or a line is too long.
    """
    limit = MAX_LINE if max_line is None else max_line
    for number in count(start):
        try:
            line = file.readline(limit + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{name}:{number}: {unreadable(error)}") from error
        if not line:
            return
        if len(line) > limit and not line.endswith(b"\n"):
            raise too_long(f"{name}:{number}", max_line)
        yield line


def skip_lines(file: BufferedReader, count: int) -> tuple[int, int]:
    """Skip lines by their ends, without holding one; return how many, and their bytes."""
    lines = 0
    size = 0
    last = b"\n"
    while lines < count and (block := file.peek()):
        ends = block.count(b"\n")
        if lines + ends >= count:
            positions = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            ends = count - lines
            block = block[: int(positions[ends - 1]) + 1]
        last = file.read(len(block))[-1:]
        lines += ends
        size += len(block)
    if last != b"\n" and lines < count:
        lines += 1  # the last line of a file may have no end
    return lines, size


def unreadable(error: Exception) -> str:
    """Return the message for a failed read."""
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return f"damaged gzip file ({error}); fetch or pack it again"
    return f"cannot be read ({getattr(error, 'strerror', None) or error})"


def too_long(where: str, max_line: int | None) -> InputError:
    """Return the error for a line of more than ``max_line`` bytes (None: MAX_LINE)."""
    limit = MAX_LINE if max_line is None else max_line
    advice = "" if max_line is None else ", or raise data.max_line"
    return InputError(
        f"{where}: the line is longer than {limit:,} bytes, too long for one sentence; cut it"
        f"{advice}"
    )


def decoded_lines(file: Iterable[bytes], name: object, start: int = 1) -> Iterator[str]:
    """Yield lines of bytes as text, without their ends; InputError if one is not UTF-8."""
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


def text_hash(*lines: str) -> int:
    """Return a 64-bit hash of lines, which have no line feed."""
    text = "\n".join(lines).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def is_large(path: Path) -> bool:
    """Whether a file is too large to be read at each start."""
    return path.is_file() and path.stat().st_size >= _LARGE


def file_digest(path: Path, cache: Path | None = None) -> bytes:
    """Return the sha256 of a file's bytes; raises InputError if file or cache cannot be read.

    The cache keeps the digest of a large file while its path, size, inode and both times (of
    modification and of change: every write moves the second) are the same. A file changed within
    the last seconds is always hashed.
    """
    with opened_file(path) as file:
        state = os.fstat(file.fileno())
        settled = time.time() - state.st_ctime >= _SETTLED_SECONDS
        if cache is None or state.st_size < _LARGE or not settled:
            return hashlib.file_digest(file, "sha256").digest()
        seen = (state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
        question = f"sha256 of {path.resolve()} {seen}"
        digest = remembered(
            cache, question, lambda: hashlib.file_digest(file, "sha256").hexdigest()
        )
    return bytes.fromhex(digest)


@contextmanager
def opened_file(path: Path) -> Iterator[BufferedReader]:
    """Open a file for its bytes; raises InputError if it is missing or cannot be read."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise MissingFile(_missing(path)) from error
    except OSError as error:
        raise InputError(f"{path}: {unreadable(error)}; give a file") from error


def check_files_exist(paths: Iterable[Path]) -> None:
    """Raise a MissingFile that names all missing files at once."""
    missing = dict.fromkeys(path for path in paths if not path.exists())
    if missing:
        raise MissingFile("; ".join(map(_missing, missing)))


def _missing(path: Path) -> str:
    if path.is_symlink():
        hint = f"; it is a link to {os.readlink(path)}, which is not there"
    elif not path.parent.is_dir():
        hint = f"; there is no folder {path.parent} (seen from {Path.cwd()})"
    else:
        hint = did_you_mean(path.name, os.listdir(path.parent))
    return f"{path}: no such file{hint or f' (seen from {Path.cwd()})'}"
