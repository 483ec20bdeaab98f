"""Reads aligned lines: a pair of plain files, one TSV or one JSONL file, each also gzipped.

Holds one pair at a time. Does not know which split a text is.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from transformer.common.cache import remembered
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.text.lines import file_digest, is_large, read_lines

Pair = tuple[str, str]
Referenced = tuple[str, tuple[str, ...]]
"""A source with its references, one at least."""


class AnotherTarget(str):
    """Another right target of the source in the pair before; every operation loses the mark."""


def pairs_of(source: str, targets: Sequence[str]) -> Iterator[Pair]:
    """Yield a pair for each target of a source."""
    for index, target in enumerate(targets):
        yield source, AnotherTarget(target) if index else target


SEPARATOR: Pair = ("", "")
"""Separates documents of JSONL; this very object, though it equals a blank line of a file."""

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_NOT_A_LINE = re.compile("\n|\r\\Z|[\ud800-\udfff]")


@dataclass(frozen=True)
class Corpus:
    """The files of an aligned text: (source, target, other targets…), or one with both sides."""

    paths: tuple[Path, ...]
    """Two plain files or more, or one .tsv or .jsonl file; each may be .gz."""
    source: str
    """The JSONL key of the source side (``data.source``)."""
    target: str
    """The JSONL key of the target side (``data.target``)."""
    document_key: str | None = None
    """A JSONL key whose value changes where a document begins: SEPARATOR is put there."""
    max_line: int | None = None
    """Bytes of the longest line (``data.max_line``); None: `lines.MAX_LINE`."""
    format: str | None = None
    """"plain", "tsv", "jsonl" or "scan"; None: by the names of the files."""
    features: bool = False
    """Whether features of the source stand between source and target of a TSV file."""

    @classmethod
    def of(
        cls,
        paths: str | Path | Sequence[str | Path],
        source: str,
        target: str,
        document_key: str | None = None,
        max_line: int | None = None,
    ) -> "Corpus":
        """Make a corpus of the paths that a user names; relative ones start at the working folder.

        Raises InputError if they are not plain files, two or more, or one TSV or JSONL file, or if
        there is a document key for other files than JSONL.
        """
        names = (paths,) if isinstance(paths, str | Path) else tuple(paths)
        found = tuple(given_path(name) for name in names)
        formats = [file_format(path) for path in found]
        if formats not in (["tsv"], ["jsonl"]) and (len(names) < 2 or {*formats} != {"plain"}):
            listed = ", ".join(
                f"{name} ({kind})" for name, kind in zip(names, formats, strict=True)
            )
            raise InputError(
                f"[{listed}] is not a corpus; give two plain files as [SOURCE,TARGET], or one .tsv "
                "or .jsonl file (each may be .gz); a treebank is for task=tagging"
            )
        if document_key is not None and formats != ["jsonl"]:
            raise InputError(
                f"{found[0]}: data.document_key={document_key} is only for JSONL; in other files a "
                "line that is blank on both sides separates documents"
            )
        return cls(found, source, target, document_key, max_line)

    @property
    def kind(self) -> str:
        """The format of the files: "plain", "tsv", "jsonl" or "scan"."""
        return self.format or file_format(self.paths[0])

    def __iter__(self) -> Iterator[Pair]:
        """Yield (source, target) line by line; after it, any `AnotherTarget` of the source.

        Raises InputError as `read_lines`, or if a line is malformed, or one file is longer.
        """
        lines = [read_lines(path, self.max_line) for path in self.paths]
        if self.kind == "scan":
            return scan_pairs(lines[0], self.paths[0])
        read = (lines, self.kind, self.paths, (self.source, self.target))
        return parsed_pairs(*read, document_key=self.document_key, features=self.features)

    def fingerprint(self, cache: Path | None = None) -> str:
        """Return a hash of content, formats and keys; ``cache`` and errors as in `file_digest`."""
        keys = (self.source, self.target, *filter(None, [self.document_key]))
        digest = hashlib.sha256(repr(keys).encode())
        for path in self.paths:
            digest.update(f"{file_format(path)} {path.suffix == '.gz'} ".encode())
            digest.update(file_digest(path, cache))
        return digest.hexdigest()

    def count(self, cache: Path) -> int:
        """Return the number of pairs; the cache has those of large files; raises as reading."""
        if not any(map(is_large, self.paths)):
            return sum(1 for _ in self)
        question = f"pairs of {self.fingerprint(cache)}"
        return int(remembered(cache, question, lambda: str(sum(1 for _ in self))))


def file_format(path: str | Path) -> str:
    """Return the format of a file by its name: "plain", "tsv" or "jsonl"."""
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
) -> Iterator[Pair]:
    """Read the lines of plain files, or of one TSV or JSONL file (``kind``)."""
    if kind == "plain":
        return plain_pairs(lines, names, start)
    if kind == "tsv":
        return tsv_pairs(lines[0], names[0], start, features=features)
    return jsonl_pairs(lines[0], names[0], sides, start, document_key)


def plain_pairs(
    files: Sequence[Iterator[str]], names: Sequence[object], start: int = 1
) -> Iterator[Pair]:
    """Join the lines of aligned files; ``start`` is the number of the first line.

    A blank line after the second file is no target. Raises InputError if numbers of lines differ.
    """
    for number, texts in enumerate(zip_longest(*files), start):
        if None in texts:
            read = [number - (text is None) for text in texts]
            counts = [lines + sum(1 for _ in file) for lines, file in zip(read, files, strict=True)]
            listed = " and ".join(map("{} has {:,} lines".format, names, counts))
            raise InputError(f"{listed}; aligned files have as many, and match line by line")
        source, target, *more = texts
        yield source, target
        yield from ((source, AnotherTarget(text)) for text in more if text)


def tsv_pairs(
    lines: Iterable[str], name: object, start: int = 1, *, features: bool = False
) -> Iterator[Pair]:
    """Split lines at the last tab; raises InputError if there are fewer or more tabs than these."""
    layout = "SOURCE<TAB>FEATURES<TAB>TARGET has two" if features else "SOURCE<TAB>TARGET has one"
    for number, line in enumerate(lines, start):
        if (tabs := line.count("\t")) != 1 + features:
            hint = ', or set tokenizer.features=";" (doctor, clean, text: data.features=";")'
            hint = hint if tabs > 1 and not features else ""
            raise InputError(f"{name}:{number}: {tabs} tabs where {layout}; correct the line{hint}")
        source, _, target = line.rpartition("\t")
        yield source, target


def scan_pairs(lines: Iterable[str], name: object) -> Iterator[Pair]:
    """Split lines such as ``IN: jump OUT: I_JUMP``; raises InputError if one is another."""
    for number, line in enumerate(lines, 1):
        if (match := re.fullmatch("IN: (.*) OUT: (.*)", line)) is None:
            raise InputError(f"{name}:{number}: not IN: COMMAND OUT: ACTIONS; correct the line")
        yield match[1], match[2]


def jsonl_pairs(
    lines: Iterable[str],
    name: object,
    sides: tuple[str, str],
    start: int,
    document_key: str | None,
) -> Iterator[Pair]:
    """Read the lines of a JSONL file, an object each; ``start`` is the number of the first.

    A SEPARATOR comes where the value of ``document_key`` changes. A list of targets is a pair for
    each. Raises InputError if a line is not an object, or lacks one of the texts or the key.
    """
    document: object = None
    for number, line in enumerate(lines, start):
        where = f"{name}:{number}"
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError
        except (ValueError, RecursionError) as error:
            # Too large a number is a ValueError, and too deep nesting a RecursionError.
            reason = getattr(error, "msg", 'write {{"{}": "...", "{}": "..."}}'.format(*sides))
            raise InputError(f"{where}: not a JSON object ({reason}); correct the line") from error
        if document_key is not None:
            if document_key not in row:
                raise InputError(f"{where}: no key {document_key!r}; set data.document_key to one")
            if number > start and row[document_key] != document:
                yield SEPARATOR
            document = row[document_key]
        targets = row.get(sides[1])
        if isinstance(targets, list) and targets:
            pairs = [record_pair({**row, sides[1]: one}, sides, where) for one in targets]
            yield from pairs_of(pairs[0][0], [target for _, target in pairs])
        else:
            yield record_pair(row, sides, where)


def record_pair(row: dict[str, object], sides: tuple[str, str], where: str) -> Pair:
    """Return both texts of a record; raises InputError if one is missing, or no line of UTF-8."""
    texts: list[str] = []
    for key, side in zip(sides, ("source", "target"), strict=True):
        if key not in row:
            keys = ", ".join(map(repr, row)) or "none"
            raise InputError(
                f"{where}: no key {key!r} (keys: {keys}); set data.{side} to the right key"
            )
        text = row[key]
        if not isinstance(text, str):
            wrong = "an empty list" if text == [] else f"{text!r:.40}"
            raise InputError(f"{where}: {key!r} has {wrong}, no string; write a text in quotes")
        # A carriage return at the end would be half of a line end in a plain file.
        if _NOT_A_LINE.search(text):
            raise InputError(
                f"{where}: {key!r} is not one line of UTF-8: it has a line break, a carriage "
                "return at its end or half a surrogate pair; correct the text"
            )
        texts.append(text)
    return texts[0], texts[1]
