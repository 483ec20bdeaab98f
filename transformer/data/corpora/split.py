"""A split: some lines of a corpus; splits that are held out of the training text.

Pairs are held out by their content: when a text grows, pairs move into training, never back.
"""

import hashlib
import heapq
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from transformer.common.errors import BadSource, InputError, errors_name
from transformer.common.files import locked, remembered
from transformer.data.features.reference import Reference, check_file
from transformer.data.text.lines import file_digest, text_hash
from transformer.data.text.parallel import SEPARATOR, AnotherTarget, Corpus, Pair
from transformer.data.text.word_alignment import WordLinks, read_links
from transformer.data.tokenization.tags import UNTAGGED, SourceTags, TaggedText

T = TypeVar("T")


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Split:
    """The pairs of a corpus that belong to one split, in the order of the corpus."""

    corpus: Corpus
    lines: frozenset[int] = frozenset()
    """0-based line numbers of the corpus."""
    inverted: bool = True
    """True: all lines except ``lines``; False: only ``lines``."""
    links: Path | None = None
    """Word alignment of the whole corpus, a line of Pharaoh links for each pair; None: unknown."""
    tags: SourceTags = UNTAGGED
    sentences: int = 1
    """Maximum number of sentences of a document in one pair; 1: each line is a pair."""
    repeated_sources: bool = False
    """Whether the targets of equal sources are references of one source."""

    @property
    def location(self) -> Path:
        """The first file of the text."""
        return self.corpus.paths[0]

    def __iter__(self) -> Iterator[Pair]:
        pairs = self._chosen(self.corpus)
        if self.tags == UNTAGGED:
            return pairs
        return ((TaggedText(source, self.tags), target) for source, target in pairs)

    def count(self, cache: Path) -> int:
        return self.corpus.count(cache) - len(self.lines) if self.inverted else len(self.lines)

    def word_links(self) -> Iterator[WordLinks]:
        """Yield the links of each pair; raises InputError if unknown, or as `read_links`."""
        corpus = self.corpus
        links = read_links(self._known_links(), corpus, corpus.max_line, corpus.features)
        return self._chosen(links)

    def links_fingerprint(self) -> str:
        return file_digest(self._known_links()).hex()

    def fingerprint(self, cache: Path | None = None) -> str:
        """Return a hash of everything that determines the pairs, except links and tags."""
        chosen = f"{self.corpus.fingerprint(cache)} {self.inverted} {sorted(self.lines)}"
        return hashlib.sha256(chosen.encode()).hexdigest()

    def _known_links(self) -> Path:
        if self.links is None:
            raise InputError(
                f"the word alignment of {self.corpus.paths[0]} is not known; set "
                "data.alignment=FILE (a line of links such as 0-0 1-2 for each training pair), "
                "or loss.alignment_weight=0"
            )
        return self.links

    def _chosen(self, lines: Iterable[T]) -> Iterator[T]:
        if self.inverted and not self.lines:
            return iter(lines)
        return (
            line for number, line in enumerate(lines) if (number in self.lines) is not self.inverted
        )


class NumberedPair(NamedTuple):
    """A sentence pair with its line number."""

    line: int
    """Line of its file or files, from 1."""
    source: str
    target: str
    source_tokens: int = 0
    target_tokens: int = 0

    @property
    def texts(self) -> tuple[str, str]:
        return self.source, self.target


def numbered(split: Split) -> Iterator[NumberedPair]:
    """Yield the pairs of a split with line numbers, without those that separate documents."""
    line = 0
    for index, pair in enumerate(split.corpus):
        if pair is SEPARATOR:
            continue
        # Another target is on the line of the pair before.
        if not isinstance(pair[1], AnotherTarget):
            line += 1
        in_split = (index in split.lines) is not split.inverted
        separates = split.sentences != 1 and not any(text.strip() for text in pair)
        if in_split and not separates:
            yield NumberedPair(line, *pair)


def check_sources(split: Split) -> None:
    """Raise InputError if files of sources are missing; it names the first, and counts the others.

    They are not read. A wrong part of a file is an error of its own.
    """
    corpus = split.corpus
    if not corpus.source_files:
        return
    checked: set[str] = set()
    errors: list[str] = []
    for line, source, *_ in numbered(split):
        with errors_name(f"{split.location}:{line}"):
            path = Reference.parse(source).path
        # A text may name many parts of one file.
        if path in checked:
            continue
        checked.add(path)
        try:
            check_file(path)
        except InputError as error:
            message = f"{split.location}:{line}: {error}"
            if line == 1 and corpus.kind == "tsv" and not Path(path).suffix:
                message += ", or delete the line: a TSV file has no header"
            errors.append(message)
    if errors:
        others = len(errors) - 1
        more = f" ({others:,} more of its files cannot be opened)" if others else ""
        raise InputError(errors[0] + more)


@contextmanager
def naming_line(split: Split) -> Iterator[None]:
    """Begin the message of a BadSource with the line of the text that names its file."""
    try:
        yield
    except BadSource as error:
        # Training changes the speed.
        bad = replace(Reference.parse(error.source), speed=1.0)
        for line, source, *_ in numbered(split):
            if replace(Reference.parse(source), speed=1.0) == bad:
                raise InputError(f"{split.location}:{line}: {error}") from error
        raise


# A smaller text (in bytes; some ten thousand pairs) is searched again at each start.
_REMEMBERED = 2**22


# To be raised when the choice of pairs changes.
_VERSION = 3


EqualLines = list[list[int]]
"""Two lists: the lines of a pair with its other targets, and the lines of pairs that equal it."""


def hold_out(train: Split, sizes: Mapping[str, int], cache: Path) -> dict[str, Split]:
    """Return "train" without the held-out pairs, and the held-out splits of these sizes.

    A pair is held out together with its `AnotherTarget`s or, if ``train.repeated_sources``, with
    all pairs of its source. Of equal pairs, also with swapped sides, the first is held out, and
    training uses none. Raises InputError if there are too few different pairs.
    """
    corpus = train.corpus
    repeated = train.repeated_sources
    wanted = sum(sizes.values())

    def find() -> str:
        # By the paths as they are written: in another folder they are the same.
        return json.dumps(_smallest(corpus.as_written(), wanted + 1, repeated))

    if sum(path.stat().st_size for path in corpus.paths if path.is_file()) < _REMEMBERED:
        equal = json.loads(find())
    else:
        with locked(cache):
            text = f"{corpus.fingerprint(cache)} {repeated}"
            question = f"lines held out {_VERSION}: {wanted} of {text}"
            equal = json.loads(remembered(cache, question, find))
    if len(equal) <= wanted:
        keys = " and ".join(f"data.{name}_size={size}" for name, size in sizes.items())
        raise InputError(
            f"{corpus.paths[0]} has {len(equal):,} different pairs, too few to hold out {keys}; "
            "set them lower, or give data.validation and data.test"
        )
    chosen = equal[:-1]
    not_trained = frozenset(line for pair, copies in chosen for line in pair + copies)
    splits = {"train": replace(train, lines=not_trained)}
    for name, size in sizes.items():
        lines = frozenset(line for pair, _ in chosen[:size] for line in pair)
        splits[name] = replace(train, lines=lines, inverted=False)
        chosen = chosen[size:]
    return splits


def _smallest(pairs: Iterable[Pair], wanted: int, repeated: bool) -> list[EqualLines]:
    """Return the lines of the pairs with the smallest hashes, equal pairs together.

    With ``repeated``, pairs of equal sources are one pair with several targets. A pair that is
    blank on both sides separates documents, and is ignored.
    """
    lines: dict[int, EqualLines] = {}
    largest: list[int] = []  # negative hashes, since heapq has the smallest on top
    value = 0
    is_copy = False
    for number, pair in enumerate(pairs):
        another = isinstance(pair[1], AnotherTarget)  # goes with the pair before it
        if not any(pair):
            if not another:
                value = -1  # no hash: its other targets are ignored, too
            continue
        if another and value not in lines:
            continue
        if not another:
            by_source = repeated and bool(pair[0])
            value = text_hash(*sorted(pair[:1] if by_source else pair))
            is_copy = not by_source and value in lines
        if value not in lines:
            if len(largest) == wanted:
                if value >= -largest[0]:
                    continue
                # A removed hash cannot come back: the largest only falls.
                del lines[-heapq.heappop(largest)]
            heapq.heappush(largest, -value)
            lines[value] = [[], []]
        lines[value][is_copy].append(number)
    return [lines[value] for value in sorted(lines)]


def log_held_out(name: str, remaining: int, train: Split) -> None:
    """Log how many pairs of the training split ``name`` are held out; ``remaining`` are not."""
    held_out = len(train.lines)
    if held_out:
        logger.log(
            # A fifth: more is seldom meant.
            logging.WARNING if 4 * held_out > remaining else logging.INFO,
            f"{name}: {held_out:,} of {held_out + remaining:,} pairs are held out "
            "(data.validation_size, data.test_size)",
        )
