"""Where lines come from and go to: files, or the standard streams.

It does not know what is done to them.
"""

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import BinaryIO

from transformer.common.errors import InputError
from transformer.common.files import named
from transformer.data.text.lines import MAX_LINE, decoded_lines, read_lines, too_long, unreadable


def input_files(source: str | None, output: str | None) -> tuple[Path, Path] | None:
    """Both paths where each is of a file proper: what can be shared out, and gone on with.

    None where one is a standard stream, a pipe or a device.

    Raises:
        InputError: The output is a folder, or the input itself.
    """
    if source is None or output is None or _is_special(Path(source)) or _is_special(Path(output)):
        return None
    # Beside the file itself, not beside a link to it, can another take its place.
    resolved = Path(output).resolve()
    if resolved.is_dir():
        raise InputError(f"output={output} is a folder; give a file in it")
    check_output_path(Path(output), [Path(source)])
    return Path(source), resolved


def check_output_path(output: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write a file that is read.

    Raises:
        InputError: The output is an input, by that name or another.
    """
    if output.resolve() in {path.resolve() for path in inputs}:
        raise InputError(f"output={output} is an input too; it would be lost: give another one")


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def open_input(path: str | None) -> tuple[Iterator[str], Callable[[], bool] | None]:
    """The lines, and whether the next one can be had without waiting (None: always)."""
    if path is not None:
        return read_lines(Path(path)), None
    # A reader of our own: Python's hides whether it still holds lines, which select cannot see.
    reader = _LineReader(sys.stdin.fileno())
    return iter(reader), reader.ready


def open_output(path: str | None, stack: ExitStack) -> BinaryIO:
    """The file, or standard output.

    Raises:
        InputError: It cannot be written.
    """
    if path is None:
        return sys.stdout.buffer
    try:
        stack.enter_context(named(path))
        return stack.enter_context(open(path, "wb"))
    except OSError as error:
        raise InputError(f"output={path} cannot be written: {error.strerror}") from error


class _LineReader:
    """Lines of a file descriptor; they end at a line feed and nowhere else."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pending = b""
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return decoded_lines(self._lines(), "stdin")

    def ready(self) -> bool:
        """Whether a whole line, or the end of the input, is there already."""
        while not self._holds_line and select.select([self.descriptor], [], [], 0)[0]:
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
        try:
            chunk = os.read(self.descriptor, 1 << 16)
        except OSError as error:
            raise InputError(f"stdin: {unreadable(error)}; give a text, or a file") from error
        self.pending += chunk
        self.ended = not chunk
