"""Finds shards, wherever fsspec reads, and reads pairs, as text/parallel.py, from any position."""

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from transformer.common.errors import InputError
from transformer.data.text.lines import decoded_lines, raw_lines
from transformer.data.text.parallel import (
    AnotherTarget,
    Pair,
    file_format,
    parsed_pairs,
    record_pair,
)

_READ_AHEAD = 1 << 20
_ROWS = 8_192
# The number of a pair has its shard above these bits, and its row in them.
_SHARD_BITS = 40
# Libraries of fsspec whose errors, all about the connection, are not OSErrors.
_CLIENTS = ("aiohttp", "botocore", "gcsfs", "azure", "requests", "paramiko")
_KNOWN = (OSError, ValueError, ImportError, EOFError, zlib.error, pa.ArrowException)


@dataclass(frozen=True)
class ShardPosition:
    """A position between two pairs of a shard."""

    row: int = 0
    offsets: tuple[int, ...] = ()
    """Bytes before it in each file, unpacked; none in Parquet."""


@dataclass(frozen=True)
class Position:
    """A position in an endless stream, where a buffer begins."""

    epoch: int = 0
    buffer: int = 0
    shard: int = 0
    place: ShardPosition = field(default_factory=ShardPosition)


@dataclass(frozen=True)
class Shard:
    """One file with both sides, or two plain files."""

    urls: tuple[str, ...]
    sides: tuple[str, str]
    max_line: int | None = None
    features: bool = False

    def pairs(self, start: ShardPosition) -> Iterator[tuple[Pair, ShardPosition]]:
        """Yield the pairs from a position on, each with the position after it."""
        with ExitStack() as stack:
            files = [stack.enter_context(_opened(url)) for url in self.urls]
            with _explained(self.urls[-1]):
                if _kind(self.urls[0]) == "parquet":
                    yield from self._rows(files[0], start.row)
                else:
                    yield from self._lines(files, start)

    def _lines(
        self, files: Sequence[io.BufferedReader], start: ShardPosition
    ) -> Iterator[tuple[Pair, ShardPosition]]:
        offsets = list(start.offsets or [0] * len(files))
        number = start.row + 1

        def counted(index: int) -> Iterator[bytes]:
            files[index].seek(offsets[index])
            for line in raw_lines(files[index], self.urls[index], self.max_line, number):
                offsets[index] += len(line)
                yield line

        lines = [decoded_lines(counted(index), url, number) for index, url in enumerate(self.urls)]
        read = (lines, _kind(self.urls[0]), self.urls, self.sides, number)
        pairs = parsed_pairs(*read, features=self.features)
        for row, pair in enumerate(pairs, number):
            if isinstance(pair[1], AnotherTarget):
                raise InputError(f"{self.urls[0]}: a stream has one target a line")
            yield pair, ShardPosition(row, tuple(offsets))

    def _rows(self, file: io.BufferedReader, before: int) -> Iterator[tuple[Pair, ShardPosition]]:
        table, (url,) = pq.ParquetFile(file), self.urls
        row, groups = 0, list(range(table.num_row_groups))
        while groups and row + table.metadata.row_group(groups[0]).num_rows <= before:
            row += table.metadata.row_group(groups.pop(0)).num_rows
        columns = [name for name in table.schema_arrow.names if name in self.sides]
        if len(columns) < len({*self.sides}):
            record_pair(dict.fromkeys(table.schema_arrow.names, ""), self.sides, url)
        for batch in (
            table.iter_batches(_ROWS, row_groups=groups, columns=columns) if groups else ()
        ):
            skipped = min(max(before - row, 0), batch.num_rows)
            for number, values in enumerate(batch.slice(skipped).to_pylist(), row + skipped + 1):
                yield record_pair(values, self.sides, f"{url}:{number}"), ShardPosition(number)
            row += batch.num_rows


def read_epoch(
    shards: Sequence[Shard], seed: int, start: Position
) -> Iterator[tuple[int, Pair, Position]]:
    """Yield (number, pair, next position) of an epoch, in an order by seed and epoch."""
    # The third number makes it differ from the random orders of batches.
    order = np.random.default_rng([seed, start.epoch, 3]).permutation(len(shards)).tolist()
    place = start.place
    for turn in range(start.shard, len(order)):
        for pair, after in shards[order[turn]].pairs(place):
            number = (order[turn] << _SHARD_BITS) + after.row - 1
            yield number, pair, Position(shard=turn, place=after)
        place = ShardPosition()


def find_shards(
    given: str | Sequence[str] | None,
    sides: tuple[str, str],
    max_line: int | None = None,
    features: bool = False,
) -> list[Shard]:
    """Return the shards that ``data.train`` names, in the order of their names.

    ``given`` is a file, a glob such as ``s3://bucket/train-*.jsonl.gz``, or a list of these; two
    plain names, or globs of equally many plain files, are source and target. ``sides`` are keys of
    JSONL and Parquet. Raises InputError if files are missing, or plain files are not in pairs.
    """
    names = [given] if isinstance(given, str) else list(given or [])
    found = [_expanded(name) for name in names]
    plain = [_kind((urls or [name])[0]) == "plain" for name, urls in zip(names, found, strict=True)]
    aligned = plain == [True, True] and len(found[0]) == len(found[1])
    if not names or not all(found) or (any(plain) and not aligned):
        files = zip(names, found, strict=True)
        listed = ", ".join(f"{name} ({len(urls) or 'no such file'})" for name, urls in files)
        raise InputError(
            f"data.train: {listed or 'null'}: a stream reads .tsv, .jsonl or .parquet files, or "
            "plain text of two names or globs, [SOURCE,TARGET], of equally many files"
        )
    if any(plain):
        shards: Iterable[tuple[str, ...]] = zip(*found, strict=True)
    else:
        shards = ((url,) for url in dict.fromkeys(chain.from_iterable(found)))
    return [Shard(urls, sides, max_line, features) for urls in shards]


def shards_fingerprint(shards: Iterable[Shard]) -> str:
    """Return a hash of names, sizes and times; files of a web server count as unchanged."""
    digest = hashlib.sha256()
    for shard in shards:
        for url in shard.urls:
            with _explained(url):
                system, path = fsspec.url_to_fs(url)
                local = isinstance(system, LocalFileSystem)  # whose ukey differs in a copy
                status = os.stat(path) if local else None
                state = f"{status.st_size} {status.st_mtime_ns}" if status else system.ukey(path)
            digest.update(f"{url} {shard.sides} {state} ".encode())
    return digest.hexdigest()


def _expanded(name: str) -> list[str]:
    with _explained(name):
        system, path = fsspec.url_to_fs(name)
        if "*" not in name and "[" not in name:
            return [name] if system.isfile(path) else []
        found = sorted(map(str, system.glob(path)))
        return [system.unstrip_protocol(entry) for entry in found] if "://" in name else found


def _kind(url: str) -> str:
    name = _name(url)
    return "parquet" if name.endswith((".parquet", ".pq")) else file_format(name)


def _name(url: str) -> str:
    return url.partition("?")[0]


@contextmanager
def _opened(url: str) -> Iterator[io.BufferedReader]:
    with ExitStack() as stack:
        with _explained(url):
            file = stack.enter_context(fsspec.open(url, "rb"))
        if _name(url).endswith(".gz"):
            file = gzip.GzipFile(fileobj=file)
        local = getattr(file, "f", None)
        if not isinstance(local, io.BufferedReader):
            local = io.BufferedReader(file, _READ_AHEAD)
        yield local


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        client = type(error).__module__.partition(".")[0] in _CLIENTS
        if isinstance(error, InputError) or not (client or isinstance(error, _KNOWN)):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{url}: cannot be read ({reason}); check data.train") from error
