"""Files of lines: what is read and written, and the part files of several calls or processes."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from transformer.common.errors import InputError
from transformer.common.files import check_output_path, given_path
from transformer.data.text.lines import read_lines
from transformer.settings.translator import Form

if TYPE_CHECKING:
    from transformer.decoding.prediction import Prediction

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, cast

from transformer.common.files import lock_open, named, open_unlinked, written_whole

Line = TypeVar("Line")


def format_line(result: "Prediction", form: Form) -> str:
    """The line of a result, such as a `Translation`, without its end: plain text, or JSON."""
    if form == "json":
        return json.dumps(result.to_json(), ensure_ascii=False)
    return result.to_line()


def given_lines(lines: Iterable[Line] | None, file: str | Path | None) -> Iterable[Line | str]:
    """The lines of a program or, for None, those of a file."""
    if isinstance(lines, str):
        raise TypeError("lines are several texts, not one string; give [text]")
    if lines is not None:
        return lines
    if file is None:
        raise InputError("there is nothing to read; give lines, or input=FILE")
    return read_lines(given_path(file))


def regular_files(source: str | Path | None, target: str | Path | None) -> tuple[Path, Path] | None:
    """The two files that are read and written; None if one is missing or a stream.

    A stream is, for example, a named pipe. Raises InputError for an output that cannot be a file.
    """
    if source is None or target is None:
        return None
    source = given_path(source)
    target = given_path(target)
    if _is_special(source) or _is_special(target):
        return None
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f"output={target} is a folder, or in none; give a file in a folder")
    check_output_path(target, [source])
    # A link stays one: the file that it names is replaced.
    return source, target.resolve()


def required_files(source: str | Path | None, target: str | Path | None) -> tuple[Path, Path]:
    """`regular_files`; InputError if they are not two."""
    files = regular_files(source, target)
    if files is None:
        raise InputError(f"input={source} and output={target} must be two files")
    return files


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


BLOCK = 64
"""Consecutive lines of one process."""

POLL_SECONDS = 0.1
"""Between two checks whether the other processes are done."""


@dataclass(frozen=True)
class LineAssignment:
    """The lines that one of ``world`` processes translates: every ``world``-th block."""

    rank: int = 0
    world: int = 1

    @classmethod
    def from_environment(cls) -> "LineAssignment":
        """The assignment of ``torchrun``; all lines without it."""
        return cls(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        return (line for n, line in enumerate(lines) if n // BLOCK % self.world == self.rank)

    def number(self, index: int) -> int:
        """The number in the whole file, from 1, of its own line of this index, from 0."""
        block, offset = divmod(index, BLOCK)
        return (block * self.world + self.rank) * BLOCK + offset + 1


@dataclass(frozen=True)
class PartFiles:
    """Part files of the ``output`` of one job; ``job`` is a hash of all that it depends on."""

    output: Path
    assignment: LineAssignment
    job: str

    def path(self, rank: int) -> Path:
        """Of one process, until it is done."""
        name = f"{self.output.name}.{self.job}.{rank + 1}of{self.assignment.world}"
        return self.output.with_name(f"{name}.part")

    def done(self, rank: int) -> Path:
        """Of one process, once it is done."""
        return self.path(rank).with_suffix(".done")

    @property
    def is_done(self) -> bool:
        """Whether an earlier call has finished the lines of this process."""
        return self.done(self.assignment.rank).exists()

    @contextmanager
    def naming_part(self) -> Iterator[None]:
        """Add to an error of the input where the lines before it are; remove an empty file."""
        try:
            yield
        except InputError as error:
            path = self.path(self.assignment.rank)
            if path.stat().st_size:
                raise InputError(f"{error}; the output of the lines before is in {path}") from error
            path.unlink()
            raise

    def finish(self) -> None:
        os.replace(self.path(self.assignment.rank), self.done(self.assignment.rank))

    def join(self) -> None:
        """Wait until all processes are done, and make the output."""
        paths = [self.done(rank) for rank in range(self.assignment.world)]
        while not all(path.exists() for path in paths):
            time.sleep(POLL_SECONDS)
        with written_whole(self.output) as whole, ExitStack() as stack:
            files = [stack.enter_context(open(path, "rb")) for path in paths]
            _interleave(files, stack.enter_context(open(whole, "wb")))
        for path in paths:
            path.unlink()


def open_part(path: Path, stack: ExitStack, start: bytes = b"") -> tuple[BinaryIO, int]:
    """Open and lock a file with this start to append to; count the whole lines, cut the rest."""
    stack.enter_context(named(path))
    file = cast(BinaryIO, stack.enter_context(open_unlinked(path, "a+b")))
    if not lock_open(file):
        raise InputError(f"{path} is being written by another process; let it end")
    if not start.startswith(os.pread(file.fileno(), len(start), 0)):
        raise InputError(f"{path} was not written by such a call; give another name")
    file.seek(0)
    lines = 0
    size = 0
    for line in file:
        if line.endswith(b"\n"):
            lines += 1
            size += len(line)
    file.truncate(size)
    return file, lines


def _interleave(files: Sequence[BinaryIO], joined: BinaryIO) -> None:
    while True:
        for file in files:
            block = list(islice(file, BLOCK))
            joined.writelines(block)
            if len(block) < BLOCK:
                return
