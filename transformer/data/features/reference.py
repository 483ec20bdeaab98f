"""Sources that are files: a path, perhaps with a part of the file, and the bytes there."""

import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np

from transformer.common.errors import InputError, MissingFile
from transformer.common.files import given_path

if TYPE_CHECKING:
    import pyarrow as pa

_FRAGMENT = re.compile(r"(?P<path>.*)#(?P<fragment>(t|row|speed)=[^#]*)", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]*)?")
_ROW = re.compile(r"[0-9]{1,18}")
SPEEDS = (0.5, 2.0)
"""The slowest and the fastest speed, as in `SpeechConfig.speeds`."""


@dataclass(frozen=True)
class Reference:
    """A file, or a part of it, as in W3C Media Fragments: ``talk.wav#t=1.5,4.2``.

    ``start`` and ``end`` are seconds of a sound, before its ``speed`` changes; without ``end`` it
    is the end of the file. ``row`` counts rows of a Parquet file from 0; without ``column``, it is
    the first column of bytes. Keys are joined by ``&``: ``clips.parquet#row=12&column=sound``; the
    name of a column is percent-encoded. Any other ``#`` belongs to the name of the file.
    """

    path: str
    start: float = 0.0
    end: float | None = None
    row: int | None = None
    speed: float = 1.0
    column: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Read a source; raises InputError, which names it, for a fragment that is wrong."""
        match = _FRAGMENT.fullmatch(text)
        if match is None:
            return cls(text)
        values: dict[str, Any] = {}
        try:
            for part in match["fragment"].split("&"):
                key, _, value = part.partition("=")
                read = _READERS.get(key)
                if read is None or key in values:
                    raise InputError(f"{part!r} is {'given twice' if read else 'unknown'}")
                values[key] = read(value)
            if "column" in values and "row" not in values:
                raise InputError("column= names no row")
        except InputError as error:
            raise InputError(
                f"{printable(text)}: {error}; write #t=START,END (seconds), #row=NUMBER, "
                "&column=NAME or #speed=FACTOR, joined by &"
            ) from error
        start, end = values.get("t", (0.0, None))
        row, column = values.get("row"), values.get("column")
        return cls(match["path"], start, end, row, values.get("speed", 1.0), column)

    def __str__(self) -> str:
        parts = []
        if self.row is not None:
            parts.append(f"row={self.row}")
            if self.column is not None:
                parts.append(f"column={quote(self.column, safe='')}")
        if self.start or self.end is not None:
            start = _written(self.start) if self.start else ""
            parts.append(f"t={start}," + ("" if self.end is None else _written(self.end)))
        if self.speed != 1:
            parts.append(f"speed={_written(self.speed)}")
        return self.path + ("#" + "&".join(parts) if parts else "")


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise InputError(f"{text!r} is not a number")
    return float(text)


def _times(text: str) -> tuple[float, float | None]:
    first, _, last = text.partition(",")
    start, end = (_number(part) if part else None for part in (first, last))
    if start is None and end is None:
        raise InputError(f"t={text} has neither start nor end")
    if end is not None and end <= (start or 0):
        raise InputError(f"t={text} ends before it starts")
    return start or 0.0, end


def _row(text: str) -> int:
    if not _ROW.fullmatch(text):
        raise InputError(f"row={text} is not the number of a row, from 0")
    return int(text)


def _speed(text: str) -> float:
    speed = _number(text)
    slowest, fastest = SPEEDS
    if not slowest <= speed <= fastest:
        raise InputError(f"speed={text} is not from {slowest:g} to {fastest:g}")
    return speed


def _column(value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        raise InputError(f"column={value} is not percent-encoded UTF-8") from error


_READERS: dict[str, Any] = {"t": _times, "row": _row, "column": _column, "speed": _speed}


def _written(number: float) -> str:
    """The shortest decimal number of this value, without an exponent."""
    return np.format_float_positional(number, trim="-")


def printable(source: object) -> str:
    """A source as one line of a message."""
    text = str(source)
    return text if text.isprintable() else ascii(text)


@contextmanager
def source_errors(
    source: object, what: str, advice: str, *errors: type[Exception]
) -> Iterator[None]:
    """Turn an error of a file, or one of these, into an InputError of one line that names it.

    ``what`` is the kind of file that was expected, ``advice`` what to do if it is another.
    """
    name = printable(source)
    expected: tuple[type[Exception], ...] = (OSError, ValueError, *errors)
    try:
        yield
    except InputError as error:
        if str(error).startswith(name):
            raise
        raise InputError(f"{name}: {error}") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFile(f"{name}: no such file; correct the path") from error
    except IsADirectoryError as error:
        raise InputError(f"{name}: a folder; name a file in it") from error
    except PermissionError as error:
        raise InputError(f"{name}: permission denied; make the file readable") from error
    except expected as error:
        raise InputError(
            f"{name}: not {what} that can be read ({reason_of(error)}); {advice}"
        ) from error


def reason_of(error: Exception) -> str:
    """The message of an error as a part of one line."""
    return " ".join(str(error).split())[:200].rstrip(". ") or type(error).__name__


def check_file(path: str) -> None:
    """Raise InputError if the file of a source is missing or a folder; it is not read.

    A blank path and a URL pass.
    """
    if not path.strip() or "://" in path:
        return
    with source_errors(path, "a file", "correct the path"):
        if stat.S_ISDIR(os.stat(given_path(path)).st_mode):
            raise IsADirectoryError


@contextmanager
def opened(reference: Reference) -> Iterator[BufferedIOBase]:
    """The bytes of a source as a file to read: a file, or a value of a Parquet file's row.

    Without ``reference.column``, the value is that of the first column that `holds_bytes`. A text,
    or a struct without bytes, names a file beside the Parquet file.

    Raises InputError, which may not name the source, or the OSError of the file.
    """
    if reference.row is None:
        with _file(reference.path) as file:
            yield file
        return
    with source_errors(reference, "a Parquet file", "name rows of Parquet files alone", IndexError):
        value = _row_value(*_place(reference))
    if isinstance(value, str):
        with _file(_beside(reference, value)) as file:
            yield file
        return
    if not value:
        raise InputError("the row has no bytes; leave it out")
    if not isinstance(value, bytes):
        raise InputError(f"the column {reference.column!r} has no bytes; name another (column=)")
    yield io.BytesIO(value)


def named_in_row(reference: Reference) -> str | None:
    """The path of the file that a row of a Parquet file names, having no bytes itself.

    Raises what reading the row does. Where all rows of a group have bytes, none is read.
    """
    if reference.row is None:
        return None
    place = _place(reference)
    if not _lacks_bytes(*place[:-1]):
        return None
    value = _row_value(*place)
    return _beside(reference, value) if isinstance(value, str) else None


def _beside(reference: Reference, name: str) -> str:
    return os.path.join(reference.path.rpartition("/")[0], name)


@contextmanager
def _file(path: str) -> Iterator[BufferedIOBase]:
    if "://" in path:
        import fsspec

        from transformer.common.urls import url_errors

        with url_errors(path), fsspec.open(path, "rb") as remote:
            data = remote.read()
        yield io.BytesIO(data)
        return
    with open(given_path(path), "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise InputError("the file is empty (0 bytes); write it again, or leave it out")
        yield file


def holds_bytes(kind: "pa.DataType") -> bool:
    """Whether a column has bytes, or structs of bytes and path, as those of ``datasets``."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(kind.get_field_index(name) >= 0 for name in ("bytes", "path"))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


_Place = tuple[str, str, int, str, int]
"""Path and state of a Parquet file, row group, column, and row in the group."""


def _place(reference: Reference) -> _Place:
    path = reference.path
    row = reference.row
    assert row is not None
    state = "" if "://" in path else str(os.stat(given_path(path)).st_mtime_ns)
    column, ends = _row_groups(path, state, reference.column)
    total = ends[-1] if ends else 0
    if row >= total:
        raise InputError(f"the file has {total:,} rows, and #row= counts from 0; name one of them")
    group = int(np.searchsorted(ends, row, side="right"))
    return path, state, group, column, row - (ends[group - 1] if group else 0)


def _row_value(path: str, state: str, group: int, column: str, row: int) -> Any:
    """The bytes of a row, or the path that it has in their place."""
    value = _row_group(path, state, group, column)[row].as_py()
    if isinstance(value, dict):
        return value.get("bytes") or value.get("path")
    return value


# `state`: what changes with the file.
@lru_cache(maxsize=64)
def _row_groups(path: str, state: str, column: str | None) -> tuple[str, tuple[int, ...]]:
    """The column, by default the first of bytes, and the row at which each group ends."""
    import pyarrow.parquet as pq

    with _file(path) as file, pq.ParquetFile(file) as parquet:
        metadata = parquet.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        schema = parquet.schema_arrow
        if column is None:
            column = next((field.name for field in schema if holds_bytes(field.type)), None)
        if column is None:
            raise InputError("no column has bytes; write one of type binary, or {bytes, path}")
        if column not in schema.names:
            known = ", ".join(schema.names)
            raise InputError(f"no column {column!r} (columns: {known}); name one of them (column=)")
        return column, tuple(int(end) for end in np.cumsum(sizes))


@lru_cache(maxsize=64)
def _lacks_bytes(path: str, state: str, group: int, column: str) -> bool:
    """Whether a row of the group may have no bytes."""
    import pyarrow.parquet as pq

    with _file(path) as file, pq.ParquetFile(file, pre_buffer=False) as parquet:
        if not holds_bytes(parquet.schema_arrow.field(column).type):
            return True
        metadata = parquet.metadata.row_group(group)
        for index in range(metadata.num_columns):
            chunk = metadata.column(index)
            if chunk.path_in_schema in (column, f"{column}.bytes"):
                counted = chunk.statistics
                return counted is None or counted.null_count != 0
    return True


# Rows are often read one after another, and Parquet unpacks groups of them; the last stays in
# memory.
@lru_cache(maxsize=1)
def _row_group(path: str, state: str, group: int, column: str) -> "pa.ChunkedArray":
    import pyarrow.parquet as pq

    # No threads: the workers of a loader are forked.
    with _file(path) as file, pq.ParquetFile(file, pre_buffer=False) as parquet:
        return parquet.read_row_group(group, columns=[column], use_threads=False)[column]
