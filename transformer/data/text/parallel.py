"""Reads aligned lines: a pair of plain files, one TSV or one JSONL, each also gzipped.

Streams, and holds one pair at a time. Does not know what the text is for, nor which split it is.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from transformer.common.cache import remembered
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.text.lines import file_digest, is_large, read_lines

Pair = tuple[str, str]

SEPARATOR: Pair = ("", "")
"""Parts documents where no line does; it is this very object, and equals a line that is blank."""

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
    max_line: int | None = None
    """Bytes of the longest line (``data.max_line``); None: `lines.MOST`."""

    @classmethod
    def of(
        cls,
        paths: str | Path | Sequence[str | Path],
        source: str,
        target: str,
        document_key: str | None = None,
        max_line: int | None = None,
    ) -> "Corpus":
        """Name a corpus as a user does; relative paths start where the command was started.

        Raises:
            InputError: there are not one or two paths, one that is neither TSV nor JSONL, or a
                document key for a file that has none.
        """
        names = (paths,) if isinstance(paths, str | Path) else tuple(paths)
        found = tuple(given_path(name) for name in names)
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
        for path in found if len(found) == 2 else ():
            if not is_plain(path):
                raise InputError(
                    f"{path}: a {file_format(path).upper()} file holds both sides; give it alone "
                    "(data.train=FILE), or two plain files"
                )
        if document_key is not None and (len(found) != 1 or file_format(found[0]) != "jsonl"):
            raise InputError(
                f"{found[0]}: data.document_key={document_key} is of JSONL; in other files a line "
                "that is blank on both sides parts documents"
            )
        return cls(found, source, target, document_key, max_line)

    def __iter__(self) -> Iterator[Pair]:
        """Yield (source, target) line by line.

        Raises:
            InputError: a file is missing, damaged, not UTF-8, malformed, or longer than the other,
                or has too long a line.
        """
        lines = [read_lines(path, self.max_line) for path in self.paths]
        if len(self.paths) == 2:
            return plain_pairs(lines[0], lines[1], self.paths)
        (path,) = self.paths
        if file_format(path) == "tsv":
            return tsv_pairs(lines[0], path)
        sides = (self.source, self.target)
        return jsonl_pairs(lines[0], path, sides, document_key=self.document_key)

    def fingerprint(self, cache: Path | None = None) -> str:
        """Return a hash of all that decides what the corpus yields: content, format, keys.

        Args:
            cache: remembers the digests of large files (`file_digest`).

        Raises:
            InputError: a file is missing or cannot be read.
        """
        keys = (self.source, self.target, *filter(None, [self.document_key]))
        digest = hashlib.sha256(repr(keys).encode())
        for path in self.paths:
            digest.update(f"{file_format(path)} {path.suffix == '.gz'} ".encode())
            digest.update(file_digest(path, cache))
        return digest.hexdigest()

    def count(self, cache: Path) -> int:
        """Return the number of pairs, which ``cache`` remembers where the files are large.

        Raises:
            InputError: as reading the corpus does.
        """

        def counted() -> str:
            return str(sum(1 for _ in self))

        if not any(map(is_large, self.paths)):
            return int(counted())
        return int(remembered(cache, f"pairs of {self.fingerprint(cache)}", counted))


def read_again_and_again(corpus: Corpus) -> Corpus:
    """Return a corpus that can be read more than once.

    Raises:
        InputError: a file of it is a pipe or a device.
    """
    for path in corpus.paths:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(
                f"{path}: a pipe can be read once, and this is read again; give a file"
            )
    return corpus


def is_plain(path: str | Path) -> bool:
    """Whether a file, by its name, holds plain text: one side alone."""
    return file_format(path) == "plain"


def file_format(path: str | Path) -> str:
    """Return what a file holds, by its name: "plain", "tsv" or "jsonl"."""
    suffix = Path(Path(path).name.removesuffix(".gz")).suffix
    if suffix == ".tsv":
        return "tsv"
    return "jsonl" if suffix in _JSON_SUFFIXES else "plain"


def plain_pairs(
    sources: Iterator[str], targets: Iterator[str], names: Sequence[object], start: int = 1
) -> Iterator[Pair]:
    """Join the lines of two aligned files; ``start`` is the number of the first line.

    Raises:
        InputError: one of the files, of these names, has more lines than the other.
    """
    source, target = names
    for number, (first, second) in enumerate(zip_longest(sources, targets), start):
        if first is None or second is None:
            first_count = number - (first is None) + sum(1 for _ in sources)
            second_count = number - (second is None) + sum(1 for _ in targets)
            raise InputError(
                f"{source} has {first_count:,} lines and {target} has {second_count:,}; "
                "aligned files have as many lines, line by line translations of each other"
            )
        yield first, second


def tsv_pairs(lines: Iterable[str], name: object, start: int = 1) -> Iterator[Pair]:
    """Part the lines of a TSV file; ``start`` is the number of the first line.

    Raises:
        InputError: a line has not one tab.
    """
    for number, line in enumerate(lines, start):
        fields = line.split("\t")
        if len(fields) != 2:
            raise InputError(
                f"{name}:{number}: {len(fields) - 1} tabs where SOURCE<TAB>TARGET has one; "
                "mend the line"
            )
        yield fields[0], fields[1]


def jsonl_pairs(
    lines: Iterable[str],
    name: object,
    sides: tuple[str, str],
    start: int = 1,
    document_key: str | None = None,
) -> Iterator[Pair]:
    """Read the lines of a JSONL file.

    Args:
        lines: an object each.
        name: of the file, for messages.
        sides: the keys of source and target.
        start: the number of the first line.
        document_key: a blank pair comes where its value changes.

    Raises:
        InputError: a line is no object, or lacks one of the texts or the key.
    """
    source, target = sides
    document: object = None
    for number, line in enumerate(lines, start):
        where = f"{name}:{number}"
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
            if number > start and row[document_key] != document:
                yield SEPARATOR
            document = row[document_key]
        yield jsonl_field(row, source, where, "source"), jsonl_field(row, target, where, "target")


def jsonl_field(row: dict[str, object], key: str, where: str, side: str) -> str:
    """Return the text of a side of a row.

    Raises:
        InputError: there is none, or it cannot be one line of UTF-8.
    """
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
    if text.endswith("\r"):
        # In a plain file it would be half of the end of the line.
        raise InputError(f"{where}: {key!r} ends in a carriage return; take it away")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {key!r} holds half a surrogate pair; mend the text") from error
    return text
