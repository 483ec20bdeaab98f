"""Where lines come from and go to: a file, or a standard stream."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import BinaryIO, TextIO

from transformer.common.files import given_path, named
from transformer.data.text.lines import MAX_LINE, decoded_lines, read_lines, too_long


def open_input(path: str | Path | None) -> tuple[Iterator[str], Callable[[], bool] | None]:
    """The lines, and whether the next one can be read without waiting (None: always)."""
    if path is not None:
        return read_lines(given_path(path)), None
    # Python's own reader has a buffer that select cannot see.
    reader = _LineReader(sys.stdin)
    return iter(reader), reader.ready


def open_output(path: str | Path | None, stack: ExitStack) -> BinaryIO:
    """The file, or standard output; an OSError names the file."""
    if path is None:
        return sys.stdout.buffer
    file = given_path(path)
    stack.enter_context(named(file))
    return stack.enter_context(open(file, "wb"))


class _LineReader:
    """Lines of a file descriptor, or a stream of one; they end at a line feed and nowhere else."""

    def __init__(self, source: int | TextIO) -> None:
        self.source = source
        self.pending = b""
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return decoded_lines(self._lines(), "stdin")

    def ready(self) -> bool:
        """Whether a whole line, or the end of the input, is there already."""
        while not self._holds_line and select.select([self.source], [], [], 0)[0]:
            self._read()
        return self._holds_line

    @property
    def _holds_line(self) -> bool:
        return self.ended or len(self.pending) > MAX_LINE or b"\n" in self.pending

    def _lines(self) -> Iterator[bytes]:
        for number in count(1):
            while not self._holds_line:
                self._read()
            line, end, self.pending = self.pending.partition(b"\n")
            if not line and not end:
                return
            if len(line) > MAX_LINE:
                raise too_long(f"stdin:{number}", None)
            yield line

    def _read(self) -> None:
        with named("stdin"):
            descriptor = self.source if isinstance(self.source, int) else self.source.fileno()
            chunk = os.read(descriptor, 1 << 16)
        self.pending += chunk
        self.ended = not chunk
