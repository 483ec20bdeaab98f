"""Part files: all the state of a translation by several processes, or in several calls."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from transformer.common.errors import InputError
from transformer.common.files import named, open_unlinked, written_whole
from transformer.common.locks import lock_open

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
    lines = size = 0
    for line in file:
        if line.endswith(b"\n"):
            lines, size = lines + 1, size + len(line)
    file.truncate(size)
    return file, lines


def _interleave(files: Sequence[BinaryIO], joined: BinaryIO) -> None:
    while True:
        for file in files:
            block = list(islice(file, BLOCK))
            joined.writelines(block)
            if len(block) < BLOCK:
                return
