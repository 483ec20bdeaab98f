"""The sha256 of files: computed once in a call, and of a large file once for all calls.

It does not know what the files are for.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer.data.text.lines import file_digest, is_large

Say = Callable[[str], None]
"""Tells the user a line."""

_PATIENCE = 3.0
"""Seconds after which the user is told what takes so long."""


class Digests:
    """What files hold, in short.

    Args:
        cache: Where the digests of large files are remembered; None remembers none.
        say: Told of a file that takes long.
    """

    def __init__(self, cache: Path | None = None, say: Say | None = None) -> None:
        self._cache, self._say = cache, say
        self._known: dict[tuple[str | int, ...], str] = {}

    def of(self, file: Path) -> str:
        """The digest of one file, in hexadecimal digits.

        Raises:
            InputError: It is missing or cannot be read.
        """
        try:
            status = file.stat()
        except OSError:
            return file_digest(file).hex()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        seen = (str(file), status.st_size, status.st_ino, *times)
        if seen not in self._known:
            with self._told(file):
                self._known[seen] = file_digest(file, self._cache).hex()
        return self._known[seen]

    @contextmanager
    def _told(self, file: Path) -> Iterator[None]:
        if self._say is None or not is_large(file):
            yield
            return
        size = file.stat().st_size / 1e9
        said = f"reading {file} ({size:.1f} GB), to see whether it is what it was"
        timer = threading.Timer(_PATIENCE, self._say, [said])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
