"""Reads aligned text, a pair at a time: plain files, one TSV, JSONL or Parquet file."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.common.errors import InputError
from transformer.common.files import given_path, remembered
from transformer.data.features.reference import Reference, holds_bytes, named_in_row
from transformer.data.text.lines import MAX_LINE, file_digest, is_large, read_lines, too_long

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Pair = tuple[str, str]
Referenced = tuple[str, tuple[str, ...]]
"""A source with its references, one at least."""


class AnotherTarget(str):
    """Another reference for the source before; string operations lose the mark."""


TRANSLATION = "translation"
"""A key of records such as ``{"translation": {"en": ..., "de": ...}}``, of datasets of Hugging
Face."""

SEPARATOR: Pair = ("", "")
"""Separates documents of JSONL. Compare it with ``is``: a blank line of a file equals it."""

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_NOT_A_LINE = re.compile("\n|\r\\Z|[\ud800-\udfff]")


@dataclass(frozen=True)
class Corpus:
    """The files of an aligned text: (source, target, other targets…), or one with both sides."""

    paths: tuple[Path, ...]
    source: str
    target: str
    document_key: str | None = None
    """A JSONL key whose value changes where a document begins: SEPARATOR is put there."""
    max_line: int | None = None
    format: str | None = None
    """"plain", "tsv", "jsonl", "parquet" or "scan"; None: by the names of the files."""
    features: str | None = None
    """What separates the features of a source, which a TSV file has between source and target."""
    source_files: bool = False
    """Whether a source is the path of a file, seen from the folder of the text."""

    @classmethod
    def of(
        cls,
        paths: str | Path | Sequence[str | Path],
        source: str,
        target: str,
        document_key: str | None = None,
        max_line: int | None = None,
    ) -> "Corpus":
        """Make a corpus of the paths that a user names; InputError if they are not one."""
        names = (paths,) if isinstance(paths, str | Path) else tuple(paths)
        files = tuple(given_path(name) for name in names)
        formats = [file_format(path) for path in files]
        if document_key is None:
            plain = len(names) > 1 and {*formats} == {"plain"}
            usable = plain or formats in (["tsv"], ["jsonl"], ["parquet"])
            needed = (
                "two plain files as [SOURCE,TARGET], or one .tsv or .jsonl file (each may be .gz), "
                "or one .parquet file"
            )
        else:
            usable = formats == ["jsonl"]
            needed = f"one .jsonl: data.document_key={document_key}"
        if not usable:
            listed = ", ".join(map("{} ({})".format, names, formats))
            raise InputError(
                f"[{listed}] is not a corpus; give {needed}; a treebank is for task=tagging"
            )
        return cls(files, source, target, document_key, max_line)

    @property
    def kind(self) -> str:
        return self.format or file_format(self.paths[0])

    def __iter__(self) -> Iterator[Pair]:
        """Yield (source, target) line by line; after it, any `AnotherTarget` of the source."""
        pairs = self.as_written()
        if not self.source_files:
            return pairs
        folder = str(self.paths[0].parent.absolute())  # other files may name it, too
        return ((beside(source, folder), target) for source, target in pairs)

    def as_written(self) -> Iterator[Pair]:
        """Yield the pairs; the path of a source is as the text has it."""
        if self.source_files and self.kind in ("jsonl", "parquet"):
            check_two_keys((self.source, self.target), self.paths[0])
        if self.kind == "parquet":
            return self._rows()
        lines = [read_lines(path, self.max_line) for path in self.paths]
        if self.kind == "scan":
            return scan_pairs(lines[0], self.paths[0])
        return parsed_pairs(
            lines,
            self.kind,
            self.paths,
            (self.source, self.target),
            document_key=self.document_key,
            features=self.features is not None,
            source_files=self.source_files,
        )

    def _rows(self) -> Iterator[Pair]:
        from transformer.data.text.parquet import opened_table

        path = self.paths[0]
        with opened_table(path) as table:
            sides = (self.source, self.target)
            for number, (source, target) in enumerate(
                parquet_pairs(table, path, sides, source_files=self.source_files), 1
            ):
                longest = max(len(text.encode()) for text in (source, target))
                if longest > (MAX_LINE if self.max_line is None else self.max_line):
                    raise too_long(f"{path}: pair {number}", self.max_line)
                yield source, target

    def fingerprint(self, cache: Path | None = None) -> str:
        """Return a hash of content, formats and keys; ``cache`` and errors as in `file_digest`."""
        keys = (self.source, self.target, *filter(None, [self.document_key]))
        digest = hashlib.sha256(repr(keys).encode())
        for path in self.paths:
            digest.update(f"{file_format(path)} {path.suffix == '.gz'} ".encode())
            digest.update(file_digest(path, cache))
        if self.source_files:
            for source, _ in self:
                digest.update(source_state(source, known=self.paths[0].absolute()).encode())
        return digest.hexdigest()

    def count(self, cache: Path) -> int:
        """Return the number of pairs; the cache has those of large files; raises as reading."""
        if not any(map(is_large, self.paths)):
            return sum(1 for _ in self)
        question = f"pairs of {self.fingerprint(cache)}"
        return int(remembered(cache, question, lambda: str(sum(1 for _ in self))))


def check_two_keys(sides: tuple[str, str], name: object) -> None:
    """Raise InputError if the path of a file would be its own text, as one key has both."""
    if sides[0] == sides[1]:
        raise InputError(
            f"{name}: data.source and data.target are both the key {sides[0]!r}; name two"
        )


def beside(source: str, folder: str) -> str:
    """A source that is a path, seen from the folder of the text that names it; or a blank one."""
    if not source.strip() or "://" in source or os.path.isabs(source):
        return source
    return f"{folder}/{source}"


def source_state(source: str, known: Path | None = None) -> str:
    """What changes when the files of a source do, but for one that is ``known`` already.

    They are that of its path, and the one that a row of a Parquet file names. A file of another
    machine counts as unchanged.
    """
    try:
        reference = Reference.parse(source)
        paths = [path for path in (reference.path, named_in_row(reference)) if path is not None]
        states = [_file_state(path) for path in paths if path != str(known)]
    except (OSError, ValueError, InputError):
        return f"{source} is not there\n"  # reading it tells why
    # The digest of a known file has this row.
    return f"{source} {' '.join(states)}\n" if states else ""


def _file_state(path: str) -> str:
    if not path.strip() or ("://" in path and not path.startswith("file://")):
        return ""
    state = os.stat(given_path(path.removeprefix("file://")))
    return f"{state.st_size} {state.st_mtime_ns}"


def at_speeds(pairs: Iterable[Pair], speeds: Sequence[float]) -> Iterator[Pair]:
    """Each pair at each speed of its sound (Ko et al. 2015, "Audio Augmentation")."""
    for source, target in pairs:
        if not source.strip():
            yield source, target
            continue
        reference = Reference.parse(source)
        for speed in speeds:
            yield str(replace(reference, speed=speed * reference.speed)), target


def file_format(path: str | Path) -> str:
    """Return the format of a file by its name: "plain", "tsv", "jsonl" or "parquet"."""
    if str(path).endswith((".parquet", ".pq")):
        return "parquet"
    suffix = Path(Path(path).name.removesuffix(".gz")).suffix
    if suffix == ".tsv":
        return "tsv"
    return "jsonl" if suffix in _JSON_SUFFIXES else "plain"


def parsed_pairs(
    lines: Sequence[Iterator[str]],
    kind: str,
    names: Sequence[object],
    sides: tuple[str, str],
    start: int = 1,
    document_key: str | None = None,
    features: bool = False,
    source_files: bool = False,
) -> Iterator[Pair]:
    """Read the lines of plain files, or of one TSV or JSONL file (``kind``)."""
    if kind == "plain":
        return plain_pairs(lines, names, start)
    if kind == "tsv":
        return tsv_pairs(lines[0], names[0], start, features=features, source_files=source_files)
    return jsonl_pairs(lines[0], names[0], sides, start, document_key)


def plain_pairs(
    files: Sequence[Iterator[str]], names: Sequence[object], start: int = 1
) -> Iterator[Pair]:
    """Join the lines of aligned files; a blank line after the second file is no target."""
    for number, texts in enumerate(zip_longest(*files), start):
        if None in texts:
            counts = [
                number - (text is None) + sum(1 for _ in file)
                for text, file in zip(texts, files, strict=True)
            ]
            raise unaligned(names, counts)
        source, target, *other_targets = texts
        yield source, target
        yield from ((source, AnotherTarget(text)) for text in other_targets if text)


def unaligned(names: Sequence[object], counts: Sequence[int]) -> InputError:
    """Return the error for plain files of different numbers of lines."""
    listed = " and ".join(map("{} has {:,} lines".format, names, counts))
    return InputError(f"{listed}; aligned files need the same number of lines")


def tsv_pairs(
    lines: Iterable[str],
    name: object,
    start: int = 1,
    *,
    features: bool = False,
    source_files: bool = False,
) -> Iterator[Pair]:
    """Split lines at the last tab; raises InputError if there are fewer or more tabs than these."""
    layout = "SOURCE<TAB>FEATURES<TAB>TARGET has two" if features else "SOURCE<TAB>TARGET has one"
    if source_files:
        layout = "PATH<TAB>TEXT has one"
    for number, line in enumerate(lines, start):
        tabs = line.count("\t")
        if tabs != 1 + features:
            hint = ""
            if tabs > 1 and not features and not source_files:
                hint = ', or set tokenizer.features=";" (doctor, clean, text: data.features=";")'
            raise InputError(f"{name}:{number}: {tabs} tabs where {layout}; correct the line{hint}")
        source, _, target = line.rpartition("\t")
        yield source, target


def scan_pairs(lines: Iterable[str], name: object) -> Iterator[Pair]:
    """Split lines such as ``IN: jump OUT: I_JUMP``; raises InputError if one is another."""
    for number, line in enumerate(lines, 1):
        match = re.fullmatch("IN: (.*) OUT: (.*)", line)
        if match is None:
            raise InputError(f"{name}:{number}: not IN: COMMAND OUT: ACTIONS; correct the line")
        yield match[1], match[2]


def jsonl_pairs(
    lines: Iterable[str], name: object, sides: tuple[str, str], start: int, document_key: str | None
) -> Iterator[Pair]:
    """Read the lines of a JSONL file, an object each; a list of targets is a pair for each."""
    document: object = None
    example = 'write {{"{}": "...", "{}": "..."}}'.format(*sides)
    for number, line in enumerate(lines, start):
        where = f"{name}:{number}"
        reason = example
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # also a large number, or deep nesting
            row = None
            reason = getattr(error, "msg", example)
        if not isinstance(row, dict) or (document_key is not None and document_key not in row):
            key = f" with data.document_key={document_key}" if document_key else ""
            raise InputError(f"{where}: not a JSON object{key} ({reason}); correct the line")
        if document_key is not None:
            if number > start and row[document_key] != document:
                yield SEPARATOR
            document = row[document_key]
        yield from record_pairs(row, sides, where)


def parquet_pairs(
    table: "pq.ParquetFile",
    name: object,
    sides: tuple[str, str],
    start: int = 1,
    *,
    source_files: bool = False,
) -> Iterator[Pair]:
    """Read the rows of a Parquet file from one on: two columns, or one of both (`TRANSLATION`).

    With ``source_files``, a source of bytes is a `Reference` to its row: they are read when they
    become vectors.
    """
    from transformer.data.text.parquet import read_rows

    schema = table.schema_arrow
    columns = [column for column in schema.names if column in sides]
    if len(columns) > len({*columns}):
        raise InputError(f"{name}: two columns have one name ({', '.join(columns)}); rename one")
    if not columns and _has_fields(schema, sides):
        columns = [TRANSLATION]
    elif len(columns) < len({*sides}):
        # Raises InputError, which lists the columns.
        record_pair(dict.fromkeys(schema.names, ""), sides, str(name), "column")
    in_rows = source_files and sides[0] in columns and holds_bytes(schema.field(sides[0]).type)
    if in_rows:
        columns.remove(sides[0])
    file = str(name).rpartition("/")[2]
    for number, row in enumerate(read_rows(table, columns, start - 1), start):
        if in_rows:
            row[sides[0]] = str(Reference(file, row=number - 1, column=sides[0]))
        yield from record_pairs(row, sides, f"{name}:{number}", "column")


def _has_fields(schema: "pa.Schema", sides: tuple[str, str]) -> bool:
    """Whether a table has its texts in one column."""
    if TRANSLATION not in schema.names:
        return False
    column = schema.field(TRANSLATION).type
    # Fields of a struct; other types have none.
    return {*sides} <= {column.field(index).name for index in range(column.num_fields)}


def record_texts(row: dict[str, Any], sides: tuple[str, str]) -> dict[str, Any]:
    """Return the part of a record that has the texts: that of `TRANSLATION`, or all of it."""
    texts = row.get(TRANSLATION)
    return texts if isinstance(texts, dict) and not {*sides} & {*row} else row


def record_pairs(
    row: dict[str, Any], sides: tuple[str, str], where: str, kind: str = "key"
) -> Iterator[Pair]:
    """Yield the texts of a record; a list of targets is a pair for each, but for blank ones beside
    others: an annotator has no answer."""
    row = record_texts(row, sides)
    targets = row.get(sides[1])
    if isinstance(targets, list) and targets:
        for index, item in enumerate([item for item in targets if item != ""] or targets[:1]):
            source, target = record_pair({**row, sides[1]: item}, sides, where, kind)
            yield source, AnotherTarget(target) if index else target
    else:
        yield record_pair(row, sides, where, kind)


def record_pair(row: dict[str, object], sides: tuple[str, str], where: str, kind: str) -> Pair:
    """Return both texts of a record; raises InputError if one is missing, or no line of UTF-8.

    A text is that of a key or a column, as ``kind`` says.
    """
    texts: list[str] = []
    for key, side in zip(sides, ("source", "target"), strict=True):
        text = row.get(key)
        # A carriage return at the end would be half of a line end in a plain file.
        if not isinstance(text, str) or _NOT_A_LINE.search(text):
            missing = f"nothing ({kind}s: {', '.join(row) or 'none'})"
            value = f"{text!r:.40}" if key in row else missing
            raise InputError(
                f"{where}: the {kind} {key!r} has {value}, not one line of UTF-8 text; "
                f"correct it, or the name of the {kind} (data.{side})"
            )
        texts.append(text)
    return texts[0], texts[1]
