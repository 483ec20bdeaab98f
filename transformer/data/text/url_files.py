"""Finds and reads files wherever fsspec reads: disks, object stores, web servers."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, NamedTuple

import fsspec
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from transformer.common.errors import InputError, MissingFile
from transformer.common.urls import opened_url, url_errors
from transformer.data.text.lines import decoded_lines, raw_lines
from transformer.data.text.parallel import (
    AnotherTarget,
    Pair,
    file_format,
    parquet_pairs,
    parsed_pairs,
)
from transformer.data.text.parquet import read_rows


class UrlFile(NamedTuple):
    """A file: its URL, or its path on the disk; its name below the folder of a glob; and its
    `file_state`."""

    url: str
    name: str
    state: str


def find_files(pattern: str) -> list[UrlFile]:
    """The files that a path, a URL or a glob of either names, in the order of their names.

    Raises MissingFile if there is none, and InputError if the place cannot be read.
    """
    with url_errors(pattern):
        system, path = fsspec.url_to_fs(pattern)
        if system.isfile(path):
            folder = path.rpartition("/")[0]
            paths = [path]
        else:
            # The part of the path before its first wildcard.
            folder = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
            matches = system.glob(path, detail=True).items()
            paths = [str(match) for match, info in sorted(matches) if info["type"] == "file"]
        states = [file_state(system, path) for path in paths]
    if not paths:
        problem = "no such file"
        if system.isdir(path):
            problem = f"a folder; name its files, such as '{pattern}/*.parquet'"
        raise MissingFile(f"{pattern}: {problem}")
    is_local = isinstance(system, LocalFileSystem)
    return [
        UrlFile(
            path if is_local else system.unstrip_protocol(path),
            path.removeprefix(folder).removeprefix("/"),
            state,
        )
        for path, state in zip(paths, states, strict=True)
    ]


def file_state(system: fsspec.AbstractFileSystem, path: str) -> str:
    """What changes with a file: its size and time on a disk, elsewhere the ukey of fsspec.

    A file of a web server counts as unchanged.
    """
    if isinstance(system, LocalFileSystem):  # whose ukey differs in a copy
        status = os.stat(path)
        return f"{status.st_size} {status.st_mtime_ns}"
    return str(system.ukey(path))


def url_format(url: str) -> str:
    """The format of a file by its name, one of `file_format`."""
    return file_format(url.partition("?")[0])


def read_sources(url: str, key: str | None, *, features: bool = False) -> Iterator[str]:
    """Yield the source texts of a file.

    They are all lines of plain text, the first column of TSV, the first two with ``features``, or
    the values of a key of JSONL and Parquet. Without a key they are whole lines, and rows of
    Parquet as JSON. Raises InputError as `read_pairs`.
    """
    kind = url_format(url)
    if key is not None and kind in ("jsonl", "parquet"):
        for text, copy in read_pairs([url], (key, key)):
            if isinstance(copy, AnotherTarget):
                raise InputError(f"{url}: the key {key!r} has several texts; give one a line")
            yield text
    elif kind == "parquet":
        with _opened_table(url) as table:
            for number, row in enumerate(read_rows(table, table.schema_arrow.names), 1):
                yield _json_object(row, f"{url}:{number}")
    elif key is not None and kind == "tsv":
        yield from ("\t".join(line.split("\t")[: 1 + features]) for line in _lines(url))
    else:
        yield from _lines(url)


def read_pairs(
    urls: Sequence[str], sides: tuple[str, str], *, features: bool = False
) -> Iterator[Pair]:
    """Yield the pairs of two plain files, or of one TSV, JSONL or Parquet file.

    ``sides`` are the keys of JSONL and Parquet. Raises InputError, which names the file and the
    line, for a text that is no line of UTF-8, and for a file that cannot be read.
    """
    kind = url_format(urls[0])
    if kind == "parquet":
        with _opened_table(urls[0]) as table:
            yield from parquet_pairs(table, urls[0], sides)
    else:
        yield from parsed_pairs([*map(_lines, urls)], kind, urls, sides, features=features)


def read_blocks(
    file: dict[str, Any], keys: tuple[str | None, ...], features: bool, size: int
) -> Iterator[dict[str, Any]]:
    """Yield the blocks of ``size`` lines of a file, without those whose numbers are ``done``.

    Rows of Ray Data, whose readers number no lines, and end them elsewhere. A file has ``urls`` and
    ``done``, a block the other keys of its file, its ``number``, the number ``first`` of its first
    line, and its texts as ``source`` and ``target``; one key reads sources, two read pairs. An
    InputError comes as the text ``error`` of the last block: Ray loses its type.
    """
    urls = file["urls"]
    done = set(file["done"])
    lines: Iterator[tuple[str, ...]]
    if len(keys) == 1:
        lines = ((text,) for text in read_sources(urls[0], keys[0], features=features))
    else:
        lines = read_pairs(urls, (str(keys[0]), str(keys[1])), features=features)
    for number in count():
        block: list[tuple[str, ...]] = []
        error = None
        try:
            block = list(islice(lines, size))
        except InputError as input_error:
            error = str(input_error)
        if (block and number not in done) or error is not None:
            keys_of_file = {key: value for key, value in file.items() if key != "done"}
            yield keys_of_file | {
                "source": [texts[0] for texts in block],
                "target": [texts[-1] for texts in block] if len(keys) == 2 else [],
                "error": error,
                "number": number,
                "first": number * size + 1,
            }
        if not block:
            return


def _lines(url: str) -> Iterator[str]:
    with url_errors(url), opened_url(url) as file:
        yield from decoded_lines(raw_lines(file, url), url)


@contextmanager
def _opened_table(url: str) -> Iterator[pq.ParquetFile]:
    with url_errors(url), opened_url(url) as file:
        yield pq.ParquetFile(file)


def _json_object(row: dict[str, Any], where: str) -> str:
    texts = []
    for key, value in row.items():
        try:
            texts.append(f"{json.dumps(key)}: {json.dumps(value)}")
        except TypeError as error:
            raise InputError(
                f"{where}: the column {key!r} has no JSON ({error}); write it as text, or leave it "
                "out of the file"
            ) from error
    return f"{{{', '.join(texts)}}}"
