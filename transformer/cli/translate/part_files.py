"""A file that several processes translate, or one process in several goes.

Each process translates its share of the lines into a part file, which is all that is remembered: a
line in it is a line done. It does not know what is done to a line.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from transformer.common.errors import InputError
from transformer.common.files import named, open_unlinked, written_whole

BLOCK = 64
"""Lines that a process takes in a row, before those of the others."""

PATIENCE = 0.1
"""Seconds between two looks at whether the others are done."""


@dataclass(frozen=True)
class Share:
    """The lines that one of ``world`` processes translates: every ``world``-th block."""

    rank: int = 0
    world: int = 1

    @classmethod
    def of_process(cls) -> "Share":
        """As ``torchrun`` tells it in the environment; without, all lines."""
        return cls(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))

    def lines(self, lines: Iterable[str], done: int) -> Iterator[str]:
        """Its own of these, without the first ``done`` of them."""
        own = (line for position, line in enumerate(lines) if self._owner(position) == self.rank)
        return islice(own, done, None)

    def number(self, index: int) -> int:
        """The number in the whole file, from 1, of its own line of this index, from 0."""
        block, position = divmod(index, BLOCK)
        return (block * self.world + self.rank) * BLOCK + position + 1

    def _owner(self, position: int) -> int:
        return position // BLOCK % self.world


class Parts:
    """The files that the shares of one job are written to, beside its output."""

    def __init__(self, output: Path, share: Share, job: str) -> None:
        """Name them after the job: what is left of another one is not gone on with.

        Args:
            output: The file that there will be in the end.
            share: Of this process.
            job: A hash of everything that the translations depend on.
        """
        self.output = output
        self.share = share
        self.job = job

    def path(self, rank: int) -> Path:
        """Of one share, until it is done."""
        name = f"{self.output.name}.{self.job}.{rank + 1}of{self.share.world}"
        return self.output.with_name(f"{name}.part")

    @property
    def is_done(self) -> bool:
        """Whether this share was done before."""
        return self.done(self.share.rank).exists()

    def done(self, rank: int) -> Path:
        """Of one share, once it is done."""
        return self.path(rank).with_suffix(".done")

    def open(self, stack: ExitStack) -> tuple[BinaryIO, int]:
        """Open the file of this share to go on with, and count the lines that are done.

        A last line without its end is dropped.

        Raises:
            InputError: It cannot be written, or another process does.
        """
        path = self.path(self.share.rank)
        try:
            stack.enter_context(named(path))
            file = cast(BinaryIO, stack.enter_context(open_unlinked(path, "a+b")))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{path} is being written by another process; let it end") from error
        except OSError as error:
            raise InputError(f"output={self.output} cannot be written: {error.strerror}") from error
        file.seek(0)
        lines = size = 0
        for line in file:
            if line.endswith(b"\n"):
                lines, size = lines + 1, size + len(line)
        file.truncate(size)
        return file, lines

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell, with an error of the input, where the lines before it are; none are gone on with.

        Raises:
            InputError: As it came, and where they are.
        """
        try:
            yield
        except InputError as error:
            path = self.path(self.share.rank)
            if path.stat().st_size:
                raise InputError(f"{error}; the lines before are translated in {path}") from error
            path.unlink()
            raise

    def finish(self) -> None:
        """Mark this share as done."""
        os.replace(self.path(self.share.rank), self.done(self.share.rank))

    def join(self) -> None:
        """Wait until all shares are done, and make the output of them."""
        shares = [self.done(rank) for rank in range(self.share.world)]
        while not all(path.exists() for path in shares):
            time.sleep(PATIENCE)
        with written_whole(self.output) as whole, ExitStack() as stack:
            files = [stack.enter_context(open(path, "rb")) for path in shares]
            joined = stack.enter_context(open(whole, "wb"))
            if len(files) == 1:
                shutil.copyfileobj(files[0], joined)
            else:
                _interleave(files, joined)
        for path in shares:
            path.unlink()


def _interleave(files: Sequence[BinaryIO], joined: BinaryIO) -> None:
    """A block of each in turn, until the first that has none left."""
    while True:
        for file in files:
            block = list(islice(file, BLOCK))
            joined.writelines(block)
            if len(block) < BLOCK:
                return
