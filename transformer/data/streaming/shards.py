"""Finds the shards of a stream, wherever fsspec reads, and reads their pairs from any position.

Skipping pairs is cheap: Parquet knows its rows, and in other shards only line ends are counted.
"""

import hashlib
import io
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Annotated

import fsspec
import numpy as np
import pyarrow.parquet as pq

from transformer.common.errors import InputError
from transformer.common.schema import Range
from transformer.common.urls import opened_url, url_errors
from transformer.data.text.lines import decoded_lines, raw_lines, skip_lines
from transformer.data.text.parallel import (
    AnotherTarget,
    Pair,
    beside,
    check_two_keys,
    parquet_pairs,
    parsed_pairs,
    unaligned,
)
from transformer.data.text.url_files import file_state, url_format

# The number of a pair has its shard above these bits, and its row in them.
_SHARD_BITS = 40

_explained = partial(url_errors, advice="check data.train")

Count = Annotated[int, Range(0)]


@dataclass(frozen=True, order=True)
class ShardPosition:
    """A position between two pairs of a shard."""

    row: Count = 0
    offsets: tuple[Count, ...] = ()
    """Bytes before it in each file, unpacked; none in Parquet."""


@dataclass(frozen=True, order=True)
class Position:
    """A position in an endless stream, where a buffer begins."""

    epoch: Count = 0
    buffer: Count = 0
    shard: Count = 0
    shard_position: ShardPosition = field(default_factory=ShardPosition)

    def rank(self, ranks: int) -> int:
        """Return the rank that makes this buffer: every ``ranks``-th of an epoch is of the same.

        Each epoch begins with the next rank. So the last buffer of an epoch, which is short, is not
        always of the same rank, all ranks advance at about the same pace, and in as many epochs as
        there are ranks each has the first buffer once.
        """
        return (self.epoch + self.buffer) % ranks


@dataclass(frozen=True)
class Shard:
    """One file with both sides, or two plain files."""

    urls: tuple[str, ...]
    sides: tuple[str, str]
    max_line: int | None = None
    features: bool = False
    source_files: bool = False
    """Whether a source is the path of a file, seen from the folder of the shard."""

    @contextmanager
    def opened(self, start: ShardPosition) -> Iterator["ShardReader"]:
        """Open a shard at a position."""
        with ExitStack() as stack:
            files = []
            for url in self.urls:
                with _explained(url):
                    files.append(stack.enter_context(opened_url(url)))
            with _explained(self.urls[-1]):
                kind = RowReader if url_format(self.urls[0]) == "parquet" else LineReader
                reader = kind(self, files, start)
            yield reader

    def pairs(self) -> Iterator[Pair]:
        """Yield all pairs."""
        with self.opened(ShardPosition()) as reader:
            yield from reader.pairs()


class ShardReader(ABC):
    """An open shard, whose next pairs are read or skipped."""

    def __init__(
        self, shard: Shard, files: Sequence[io.BufferedReader], start: ShardPosition
    ) -> None:
        self._shard = shard
        self._files = files
        self.row = start.row

    @property
    @abstractmethod
    def position(self) -> ShardPosition:
        """The position of the next pair."""

    def pairs(self) -> Iterator[Pair]:
        """Yield the next pairs, until some are skipped; InputError if one is no pair."""
        shard = self._shard
        folder = shard.urls[0].rpartition("/")[0] or "."
        if shard.source_files and url_format(shard.urls[0]) in ("jsonl", "parquet"):
            check_two_keys(shard.sides, shard.urls[0])
        with _explained(shard.urls[-1]):
            for source, target in self._read():
                if isinstance(target, AnotherTarget):
                    raise InputError(f"{shard.urls[0]}: a stream has one target a line")
                self.row += 1
                if shard.source_files:
                    source = beside(source, folder)
                yield source, target

    def skip(self, count: int) -> int:
        """Skip pairs, and return how many there were; their text is not parsed or checked."""
        before = self.row
        with _explained(self._shard.urls[-1]):
            self._skip(count)
        return self.row - before

    @abstractmethod
    def _read(self) -> Iterator[Pair]: ...

    @abstractmethod
    def _skip(self, count: int) -> None: ...


class LineReader(ShardReader):
    """A shard of lines, each a pair or a side of one; all bytes of skipped lines are read."""

    def __init__(
        self, shard: Shard, files: Sequence[io.BufferedReader], start: ShardPosition
    ) -> None:
        super().__init__(shard, files, start)
        self._offsets = list(start.offsets or [0] * len(files))
        for file, offset in zip(files, self._offsets, strict=True):
            file.seek(offset)

    @property
    def position(self) -> ShardPosition:
        return ShardPosition(self.row, tuple(self._offsets))

    def _read(self) -> Iterator[Pair]:
        shard = self._shard
        first = self.row + 1

        def counted(index: int) -> Iterator[bytes]:
            for line in raw_lines(self._files[index], shard.urls[index], shard.max_line, first):
                self._offsets[index] += len(line)
                yield line

        lines = [decoded_lines(counted(index), url, first) for index, url in enumerate(shard.urls)]
        return parsed_pairs(
            lines,
            url_format(shard.urls[0]),
            shard.urls,
            shard.sides,
            start=first,
            features=shard.features,
            source_files=shard.source_files,
        )

    def _skip(self, count: int) -> None:
        skipped = [skip_lines(file, count) for file in self._files]
        lines = [count for count, _ in skipped]
        if len({*lines}) > 1:
            rests = [skip_lines(file, sys.maxsize)[0] for file in self._files]
            totals = [self.row + lines + rest for lines, rest in zip(lines, rests, strict=True)]
            raise unaligned(self._shard.urls, totals)
        self.row += lines[0]
        for index, (_, size) in enumerate(skipped):
            self._offsets[index] += size


class RowReader(ShardReader):
    """A shard of Parquet; row groups that are skipped as a whole are not read."""

    def __init__(
        self, shard: Shard, files: Sequence[io.BufferedReader], start: ShardPosition
    ) -> None:
        super().__init__(shard, files, start)
        self._table = pq.ParquetFile(files[0])

    @property
    def position(self) -> ShardPosition:
        return ShardPosition(self.row)

    def _read(self) -> Iterator[Pair]:
        shard = self._shard
        return parquet_pairs(
            self._table,
            shard.urls[0],
            shard.sides,
            self.row + 1,
            source_files=shard.source_files,
        )

    def _skip(self, count: int) -> None:
        self.row = min(self.row + count, self._table.metadata.num_rows)


class EpochReader:
    """The pairs of an epoch from a position on, with shards in an order by seed and epoch."""

    def __init__(self, shards: Sequence[Shard], seed: int, start: Position) -> None:
        # The third number makes it differ from the random orders of batches.
        order = np.random.default_rng([seed, start.epoch, 3]).permutation(len(shards))
        self._shards = shards
        self._order: list[int] = order.tolist()
        self._start = start
        self._turn = start.shard
        self._files = ExitStack()
        self._shard: ShardReader | None = None
        self._pairs: Iterator[Pair] | None = None

    @property
    def position(self) -> Position:
        """The position after the last pair, in the buffer of the start."""
        assert self._shard is not None
        return replace(self._start, shard=self._turn, shard_position=self._shard.position)

    def take(self, count: int) -> list[tuple[int, Pair]]:
        """Return the next pairs, each after its number; fewer at the end of the epoch."""
        taken: list[tuple[int, Pair]] = []
        for shard in self._open_shards():
            number = (self._order[self._turn] << _SHARD_BITS) + shard.row
            self._pairs = self._pairs or shard.pairs()
            taken += enumerate(islice(self._pairs, count - len(taken)), number)
            if len(taken) == count:
                break
        return taken

    def skip(self, count: int) -> int:
        """Skip the next pairs, and return how many there were; fewer at the end of the epoch."""
        self._pairs = None
        skipped = 0
        for shard in self._open_shards():
            skipped += shard.skip(count - skipped)
            if skipped == count:
                break
        return skipped

    def close(self) -> None:
        """Close the open shard."""
        self._files.close()
        self._shard = self._pairs = None

    def _open_shards(self) -> Iterator[ShardReader]:
        """Yield the open shard, and open the next one when it is over."""
        while self._turn < len(self._order):
            if self._shard is None:
                shard = self._shards[self._order[self._turn]]
                is_first = self._turn == self._start.shard
                begin = self._start.shard_position if is_first else ShardPosition()
                self._shard = self._files.enter_context(shard.opened(begin))
            yield self._shard
            self.close()
            self._turn += 1


def line_name(shards: Sequence[Shard], number: int) -> str:
    """The file and the line of a pair, by its number of `EpochReader.take`."""
    index, row = divmod(number, 1 << _SHARD_BITS)
    return f"{shards[index].urls[0]}:{row + 1}"


def find_shards(
    train: str | Sequence[str] | None,
    sides: tuple[str, str],
    max_line: int | None = None,
    features: bool = False,
    source_files: bool = False,
) -> list[Shard]:
    """Return the shards that ``data.train`` names, in the order of their names.

    ``train`` is a file, a glob such as ``s3://bucket/train-*.jsonl.gz``, or a list of these; two
    plain names, or globs of equally many plain files, are source and target. ``sides`` are keys of
    JSONL and Parquet. Raises InputError if files are missing, or plain files are not in pairs.
    """
    names = [train] if isinstance(train, str) else list(train or [])
    files = [_expanded(name) for name in names]
    plain = [
        url_format(urls[0] if urls else name) == "plain"
        for name, urls in zip(names, files, strict=True)
    ]
    aligned = plain == [True, True] and len(files[0]) == len(files[1])
    if not names or not all(files) or (any(plain) and not aligned):
        counts = zip(names, files, strict=True)
        listed = ", ".join(f"{name} ({len(urls) or 'no such file'})" for name, urls in counts)
        raise InputError(
            f"data.train: {listed or 'null'}: a stream reads .tsv, .jsonl or .parquet files, or "
            "plain text of two names or globs, [SOURCE,TARGET], of equally many files"
        )
    if any(plain):
        shards: Iterable[tuple[str, ...]] = zip(*files, strict=True)
    else:
        shards = ((url,) for url in dict.fromkeys(chain.from_iterable(files)))
    return [Shard(urls, sides, max_line, features, source_files) for urls in shards]


def shards_fingerprint(shards: Iterable[Shard]) -> str:
    """Return a hash of names, sizes and times; files of a web server count as unchanged."""
    digest = hashlib.sha256()
    for shard in shards:
        for url in shard.urls:
            with _explained(url):
                state = file_state(*fsspec.url_to_fs(url))
            digest.update(f"{url} {shard.sides} {state} ".encode())
    return digest.hexdigest()


def _expanded(name: str) -> list[str]:
    with _explained(name):
        system, path = fsspec.url_to_fs(name)
        if "*" not in name and "[" not in name:
            return [name] if system.isfile(path) else []
        paths = sorted(map(str, system.glob(path)))
        return [system.unstrip_protocol(path) for path in paths] if "://" in name else paths
