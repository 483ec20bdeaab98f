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
from itertools import count
from pathlib import Path

from transformer.common.cache import remembered
from transformer.common.errors import InputError, MissingFile, did_you_mean

MOST = 1_000_000
"""Bytes of the longest line that is read where nothing else is asked (``data.max_line``)."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A file this large (in bytes, a quarter of a second to hash) is not read again at each start.
_LARGE = 1 << 28
# A change within the same tick of the file system's clock would not show; ticks are far shorter.
_SETTLED_SECONDS = 5.0
_DIGEST = re.compile("[0-9a-f]{64}")


def read_lines(path: Path, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, with or without byte order mark, also gzipped.

    Args:
        path: of the file.
        most: bytes of the longest line, as ``data.max_line`` says; None: MOST.

    Raises:
        InputError: the file is missing, a folder, cannot be read, is no UTF-8, is a damaged gzip
            file, or has a longer line.
    """
    with _opened(path) as raw:
        if path.suffix == ".gz":
            yield from unpacked_lines(raw, path, most)
        else:
            yield from decoded_lines(raw_lines(raw, path, most), path)


def unpacked_lines(packed: BufferedReader, name: object, most: int | None = None) -> Iterator[str]:
    """Yield the lines of an open gzip file.

    Raises:
        InputError: it is damaged or no UTF-8, or as `raw_lines`; the message begins with ``name``.
    """
    number = 0
    try:
        unpacked = gzip.GzipFile(fileobj=packed)
        for line in decoded_lines(raw_lines(unpacked, name, most), name):
            number += 1
            yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{name}: damaged gzip file after line {number} ({error}); fetch or pack it again"
        ) from error


def raw_lines(
    file: BufferedReader | gzip.GzipFile, name: object, most: int | None = None, start: int = 1
) -> Iterator[bytes]:
    """Yield the lines of an open file with their ends; ``start`` is the number of the first.

    Raises:
        InputError: the file cannot be read, or a line is too long; the message begins with
            ``name``. No more of it than ``most`` bytes are ever held.
    """
    longest = MOST if most is None else most
    for number in count(start):
        try:
            line = file.readline(longest + 1)
        except gzip.BadGzipFile:
            raise
        except OSError as error:
            raise InputError(f"{name}:{number}: {unreadable(error)}") from error
        if not line:
            return
        if len(line) > longest and not line.endswith(b"\n"):
            raise too_long(f"{name}:{number}", most)
        yield line


def unreadable(error: OSError) -> str:
    """Say that reading has failed, and why."""
    return f"cannot be read ({error.strerror or error})"


def too_long(where: str, most: int | None) -> InputError:
    """What to raise for a line that is longer than ``most`` bytes (None: MOST)."""
    longer = "" if most is None else ", or raise data.max_line"
    return InputError(
        f"{where}: the line is longer than {MOST if most is None else most:,} bytes, which is "
        f"hardly one sentence; cut it{longer}"
    )


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
            try:
                return hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise InputError(f"{path}: {unreadable(error)}") from error

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
        raise InputError(f"{path}: {unreadable(error)}") from error


def check_files_exist(paths: Iterable[Path]) -> None:
    """Refuse files that are not there, all at once.

    Raises:
        MissingFile: there is one.
    """
    missing = dict.fromkeys(path for path in paths if not path.exists())
    if missing:
        raise MissingFile("; ".join(f"{path}: no such file{_nearest(path)}" for path in missing))


def _nearest(path: Path) -> str:
    if path.is_symlink():
        return f"; it is a link to {os.readlink(path)}, which is not there"
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} (seen from {Path.cwd()})"
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        names = []
    return did_you_mean(path.name, names) or f" (seen from {Path.cwd()})"
