"""Finds the shards of a corpus, local or at a URL, and reads their pairs from any place on.

Knows TSV, JSONL, Parquet and pairs of plain files wherever fsspec does
(https://filesystem-spec.readthedocs.io); does not know in which order shards are read, nor pieces.
The line formats are read as in corpus.py, which libraries for tables do not: there a quotation
mark, a lone \\r or U+2028 would be more than text.
"""

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from transformer.common.errors import InputError
from transformer.data.text.lines import decoded_lines, raw_lines, unpacked_lines
from transformer.data.text.parallel import (
    Pair,
    file_format,
    jsonl_field,
    jsonl_pairs,
    plain_pairs,
    tsv_pairs,
)

_READ_AHEAD = 1 << 20
_ROWS = 8_192
# Libraries behind fsspec whose errors, all about the connection, are no OSError.
_CLIENTS = ("aiohttp", "botocore", "gcsfs", "azure", "requests", "paramiko")


@dataclass(frozen=True)
class Place:
    """Between two pairs of a shard."""

    row: int = 0
    """Pairs before it."""
    offsets: tuple[int, ...] = ()
    """Bytes before it in each file, where it can be jumped to."""


@dataclass(frozen=True)
class Shard:
    """One file with both sides, or two plain ones."""

    urls: tuple[str, ...]
    """Paths, or URLs of any kind that fsspec opens."""
    sides: tuple[str, str]
    """Keys of source and target in JSONL, columns in Parquet."""
    max_line: int | None = None
    """Bytes of the longest line (``data.max_line``); None: `lines.MOST`."""

    def pairs(self, place: Place) -> Iterator[tuple[Pair, Place]]:
        """Yield the pairs from a place on, each with the place behind it.

        Raises:
            InputError: a file is missing, cannot be read, is damaged or malformed.
        """
        with ExitStack() as stack:
            files = [stack.enter_context(_opened(url)) for url in self.urls]
            with _explained(self.urls[-1]):
                if _kind(self.urls[0]) == "parquet":
                    yield from self._rows(files[0], place.row)
                elif any(map(_is_packed, self.urls)):
                    yield from self._packed(files, place.row)
                else:
                    yield from self._plain(files, place)

    def _plain(
        self, files: Sequence[io.BufferedReader], place: Place
    ) -> Iterator[tuple[Pair, Place]]:
        offsets = list(place.offsets or [0] * len(files))

        start = place.row + 1

        def counted(index: int) -> Iterator[bytes]:
            files[index].seek(offsets[index])
            for line in raw_lines(files[index], self.urls[index], self.max_line, start):
                offsets[index] += len(line)
                yield line

        lines = [decoded_lines(counted(index), url, start) for index, url in enumerate(self.urls)]
        for row, pair in enumerate(self._parsed(lines, start), start):
            yield pair, Place(row, tuple(offsets))

    def _packed(
        self, files: Sequence[io.BufferedReader], before: int
    ) -> Iterator[tuple[Pair, Place]]:
        """Read on from the start: nothing else can be done with gzip."""
        lines = [
            unpacked_lines(file, url, self.max_line)
            if _is_packed(url)
            else decoded_lines(raw_lines(file, url, self.max_line), url)
            for file, url in zip(files, self.urls, strict=True)
        ]
        pairs = enumerate(self._parsed(lines, 1), start=1)
        for row, pair in islice(pairs, before, None):
            yield pair, Place(row)

    def _parsed(self, lines: Sequence[Iterator[str]], start: int) -> Iterator[Pair]:
        if len(lines) == 2:
            return plain_pairs(lines[0], lines[1], self.urls, start)
        (url,) = self.urls
        if _kind(url) == "tsv":
            return tsv_pairs(lines[0], url, start)
        return jsonl_pairs(lines[0], url, self.sides, start)

    def _rows(self, file: io.BufferedReader, before: int) -> Iterator[tuple[Pair, Place]]:
        table, (url,) = pq.ParquetFile(file), self.urls
        for name, side in zip(self.sides, ("source", "target"), strict=True):
            if name not in table.schema_arrow.names:
                columns = ", ".join(map(repr, table.schema_arrow.names))
                raise InputError(
                    f"{url}: no column {name!r} (columns: {columns}); set data.{side} to the "
                    "right one"
                )
        row, groups = 0, range(table.num_row_groups)
        while groups and row + table.metadata.row_group(groups[0]).num_rows <= before:
            row += table.metadata.row_group(groups[0]).num_rows
            groups = groups[1:]
        batches = table.iter_batches(_ROWS, row_groups=list(groups), columns=list(self.sides))
        for batch in batches if groups else ():
            skipped = min(max(before - row, 0), batch.num_rows)
            row += skipped
            for values in batch.slice(skipped).to_pylist():
                row += 1
                where = f"{url}:{row}"
                source, target = self.sides
                pair = (
                    jsonl_field(values, source, where, "source"),
                    jsonl_field(values, target, where, "target"),
                )
                yield pair, Place(row)


def find_shards(
    given: str | Sequence[str] | None, sides: tuple[str, str], max_line: int | None = None
) -> list[Shard]:
    """Return the shards that ``data.train`` names, in the order of their names.

    Args:
        given: a file, a glob such as ``s3://bucket/train-*.jsonl.gz``, or a list of these; two
            plain names, or globs of as many plain files each, are source and target.
        sides: of JSONL and Parquet.
        max_line: bytes of the longest line (``data.max_line``); None: `lines.MOST`.

    Raises:
        InputError: there are none, one is missing, or the plain files do not go in pairs.
    """
    names = [given] if isinstance(given, str) else list(given or [])
    found = [_expanded(name) for name in names]
    if not names:
        raise InputError("data.streaming=true reads shards; set data.train=[SHARDS]")
    plain = [_kind(urls[0]) == "plain" for urls in found]
    if not any(plain):
        return [Shard((url,), sides, max_line) for url in dict.fromkeys(chain.from_iterable(found))]
    if plain != [True, True] or len(found[0]) != len(found[1]):
        listed = ", ".join(f"{name} ({len(urls)})" for name, urls in zip(names, found, strict=True))
        raise InputError(
            f"data.train: {listed}: plain text streams from two names or globs, [SOURCE,TARGET], "
            "of as many files; all else is .tsv, .jsonl or .parquet"
        )
    return [Shard(urls, sides, max_line) for urls in zip(*found, strict=True)]


def shards_fingerprint(shards: Iterable[Shard]) -> str:
    """Return a hash of the names of the files, and of what their file system tells of each.

    Of a local file these are its size and when it was modified; a web server's files are taken not
    to change.

    Raises:
        InputError: a file is missing.
    """
    digest = hashlib.sha256()
    for shard in shards:
        for url in shard.urls:
            with _explained(url):
                digest.update(f"{url} {shard.sides} {_state(url)} ".encode())
    return digest.hexdigest()


def _state(url: str) -> str:
    """Return what tells a file from another of its name.

    Of a local one fsspec would also take where it lies on the disk, which a copy changes.
    """
    system, path = fsspec.url_to_fs(url)
    if isinstance(system, LocalFileSystem):
        status = os.stat(path)
        return f"{status.st_size} {status.st_mtime_ns}"
    return str(system.ukey(path))


def _expanded(name: str) -> list[str]:
    with _explained(name):
        system, path = fsspec.url_to_fs(name)
        if "*" in name or "[" in name:
            found = sorted(map(str, system.glob(path)))
            if not found:
                raise InputError(f"{name}: no file is named so; set data.train to your shards")
            local = "://" not in name
            return found if local else [system.unstrip_protocol(entry) for entry in found]
        if not system.isfile(path):
            raise FileNotFoundError
    return [name]


def _kind(url: str) -> str:
    name = _name(url)
    return "parquet" if name.endswith((".parquet", ".pq")) else file_format(name)


def _is_packed(url: str) -> bool:
    return _name(url).endswith(".gz")


def _name(url: str) -> str:
    """Without the query, such as a signature."""
    return url.partition("?")[0]


@contextmanager
def _opened(url: str) -> Iterator[io.BufferedReader]:
    with _explained(url):
        file = fsspec.open(url, "rb").open()
    try:
        local = getattr(file, "f", None)
        if isinstance(local, io.BufferedReader):
            yield local
        else:
            yield io.BufferedReader(file, _READ_AHEAD)
    finally:
        file.close()


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Tell in one line what went wrong with a file."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{url}: no such file; set data.train to your shards") from error
    except (pa.ArrowInvalid, pa.ArrowException) as error:
        raise InputError(f"{url}: damaged Parquet file ({_first_line(error)})") from error
    except ImportError as error:
        raise InputError(f"{url}: cannot be read: {_first_line(error)}") from error
    except Exception as error:
        known = isinstance(error, OSError | ValueError)
        if not known and type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        raise InputError(f"{url}: cannot be read ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    lines: list[Any] = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
