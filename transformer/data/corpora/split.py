"""A split: some lines of a corpus."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from transformer.common.errors import InputError
from transformer.data.text.lines import file_digest
from transformer.data.text.parallel import SEPARATOR, AnotherTarget, Corpus, Pair
from transformer.data.text.word_alignment import WordLinks, read_links
from transformer.data.tokenization.tags import UNTAGGED, SourceTags, TaggedText

T = TypeVar("T")


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
        return self._chosen(read_links(self._known_links(), self.corpus, self.corpus.max_line))

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
