"""Reads aligned lines: a pair of plain files, one TSV or one JSONL, each also gzipped.

Streams, and holds one pair at a time. Does not know what the text is for, nor which split it is.
A line ends at \\n or \\r\\n and nowhere else: U+2028, \\x85 or a lone \\r are text.
"""

import difflib
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path

from transformer.errors import InputError

Pair = tuple[str, str]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Corpus:
    """Where aligned text lies: (source file, target file), or one file with both sides."""

    paths: tuple[Path, ...]
    """Two plain files, or one .tsv or .jsonl file; .gz is unpacked on the way."""
    source: str
    """The JSONL key of the source side (``data.source``)."""
    target: str
    """The JSONL key of the target side (``data.target``)."""
    document_key: str | None = None
    """A JSONL key whose value changes where another document begins: a blank pair is put there."""

    @classmethod
    def of(
        cls,
        paths: str | Path | Sequence[str | Path],
        source: str,
        target: str,
        document_key: str | None = None,
    ) -> "Corpus":
        """Name a corpus as a user does; relative paths start where the command was started.

        Raises:
            InputError: there are not one or two paths, one that is neither TSV nor JSONL, or a
                document key for a file that has none.
        """
        names = (paths,) if isinstance(paths, str | Path) else tuple(paths)
        found = tuple(Path(name).expanduser() for name in names)
        if len(found) not in (1, 2):
            listed = ", ".join(map(str, names))
            raise InputError(
                f"[{listed}] is not a corpus; give [SOURCE,TARGET], or one TSV or JSONL file"
            )
        if len(found) == 1 and is_plain(found[0]):
            raise InputError(
                f"{found[0]}: one file holds both sides only as .tsv or .jsonl (or these .gz); "
                "give two plain files as [SOURCE,TARGET]; a treebank is for task=tagging"
            )
        if document_key is not None and (len(found) != 1 or _format(found[0]) != "jsonl"):
            raise InputError(
                f"{found[0]}: data.document_key={document_key} is of JSONL; in other files a line "
                "that is blank on both sides parts documents"
            )
        return cls(found, source, target, document_key)

    def __iter__(self) -> Iterator[Pair]:
        """Yield (source, target) line by line.

        Raises:
            InputError: a file is missing, damaged, not UTF-8, malformed, or longer than the other.
        """
        if len(self.paths) == 2:
            return _read_plain(*self.paths)
        (path,) = self.paths
        if _format(path) == "tsv":
            return _read_tsv(path)
        return _read_jsonl(path, self.source, self.target, self.document_key)

    def fingerprint(self) -> str:
        """Return a hash of all that decides what the corpus yields: content, format, keys.

        Raises:
            InputError: a file is missing or cannot be read.
        """
        keys = (self.source, self.target, *filter(None, [self.document_key]))
        digest = hashlib.sha256(repr(keys).encode())
        for path in self.paths:
            digest.update(f"{_format(path)} {path.suffix == '.gz'} ".encode())
            with _opened(path) as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, with or without byte order mark, also gzipped.

    Raises:
        InputError: the file is missing, a folder, no UTF-8, or a damaged gzip file.
    """
    number = 0
    with _opened(path) as raw:
        file: BufferedReader | gzip.GzipFile = raw
        if path.suffix == ".gz":
            file = gzip.GzipFile(fileobj=raw)
        try:
            for number, line in enumerate(file, start=1):
                yield _decoded(line, path, number)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(
                f"{path}: damaged gzip file after line {number} ({error}); fetch or pack it again"
            ) from error


def _decoded(line: bytes, path: Path, number: int) -> str:
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number}: byte {error.start + 1} of the line is not UTF-8; "
            "save the file as UTF-8 (iconv -t UTF-8)"
        ) from error


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file{_nearest(path)}") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a folder; give a file in it") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def _nearest(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} (seen from {Path.cwd()})"
    names = [entry.name for entry in path.parent.iterdir()]
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"; is {path.parent / near[0]} meant?" if near else f" (seen from {Path.cwd()})"


def is_plain(path: str | Path) -> bool:
    """Whether a file, by its name, holds plain text: one side alone."""
    return _format(Path(path)) == "plain"


def _format(path: Path) -> str:
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix == ".tsv":
        return "tsv"
    return "jsonl" if suffix in _JSON_SUFFIXES else "plain"


def _read_plain(source: Path, target: Path) -> Iterator[Pair]:
    sources, targets = read_lines(source), read_lines(target)
    for number, (first, second) in enumerate(zip_longest(sources, targets), start=1):
        if first is None or second is None:
            first_count = number - (first is None) + sum(1 for _ in sources)
            second_count = number - (second is None) + sum(1 for _ in targets)
            raise InputError(
                f"{source} has {first_count:,} lines and {target} has {second_count:,}; "
                "aligned files have as many lines, line by line translations of each other"
            )
        yield first, second


def _read_tsv(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise InputError(
                f"{path}:{number}: {len(fields) - 1} tabs where SOURCE<TAB>TARGET has one; "
                "mend the line"
            )
        yield fields[0], fields[1]


def _read_jsonl(path: Path, source: str, target: str, document_key: str | None) -> Iterator[Pair]:
    document: object = None
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            # Python reads no number of more than 4,300 digits, and nothing nested too deep.
            reason = getattr(error, "msg", "a number too long, or nested too deep")
            raise InputError(f"{where}: not a JSON object ({reason}); mend the line") from error
        if not isinstance(row, dict):
            raise InputError(f"{where}: not a JSON object; write {{{source!r}: ..., ...}}")
        if document_key is not None:
            if document_key not in row:
                raise InputError(f"{where}: no key {document_key!r}; set data.document_key to one")
            if number > 1 and row[document_key] != document:
                yield "", ""
            document = row[document_key]
        yield _field(row, source, where, "source"), _field(row, target, where, "target")


def _field(row: dict[str, object], key: str, where: str, side: str) -> str:
    if key not in row:
        keys = ", ".join(map(repr, row)) or "none"
        raise InputError(
            f"{where}: no key {key!r} (keys: {keys}); set data.{side} to the right key"
        )
    text = row[key]
    if not isinstance(text, str):
        raise InputError(f"{where}: {key!r} is not a string; write the text in quotes")
    if "\n" in text:
        raise InputError(f"{where}: {key!r} holds a line break; a text is one line: use a space")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {key!r} holds half a surrogate pair; mend the text") from error
    return text
