"""Long sources: split into sentences and parts; translations that reached their maximum length."""

import logging
import math
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from transformer.common.errors import InputError
from transformer.data.features.read_source import ReadSource, Times
from transformer.data.features.windows import quietest_cut
from transformer.data.text.phrases import OTHER, SENTENCE_ENDS, char_kind
from transformer.data.text.placeholders import PLACEHOLDER
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import is_tag, parse_tags, with_tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints
from transformer.settings.run import RunConfig

log = logging.getLogger(__name__)

OF_SENTENCES = ("bleu", "chrf", "ter", "gleu", "comet", "custom")
"""Metrics of translated sentences; the others are of whole lines."""

UNCUT = 1.2
"""A sentence is cut only if it is longer than so many times ``SourceLimits.usual``: a little beyond
the training text a whole sentence is better than its parts (benchmarks/decoding/searches.md)."""

_NON_ASCII_BLANK = re.compile(r"[^\S\x00-\x7f]")


@dataclass(frozen=True)
class SourceLimits:
    """Which sources are split, and where; the unit is subwords without tags."""

    longest: int = sys.maxsize
    """No source may be longer: the positions of the model."""
    usual: int = sys.maxsize
    """A longer source is split into sentences: hardly any source of the training text is longer."""
    language: str | None = ""
    """Of the source, as ISO 639-1; another code has the rules of English. With None, a source is no
    sequence of sentences: it is cut into as few parts as fit."""

    @classmethod
    def trained(cls, config: RunConfig, longest_source: int | None) -> "SourceLimits":
        """The limits of a run, without those of the model, which a translator sets.

        A model of whole lines, such as a summarizer, splits no sentences; of files, only sound is
        split.
        Without ``longest_source``, as in an imported model, it is ``data.max_length``.
        """
        if config.data.source_kind != "text":
            is_sound = config.data.source_kind == "speech"
            return cls(usual=longest_source or config.data.max_length) if is_sound else cls()
        if not has_sentences(config):
            return cls(language=None)
        usual = longest_source or config.data.max_length
        corpora = (config.data.corpora or {}).values()
        languages = [corpus.source for corpus in corpora if corpus.source]
        language = base_language([*languages, config.data.source][0])
        return cls(usual=usual, language=language)

    def split(self, subwords: Sequence[str], sentences: Sequence[int] = ()) -> list[int]:
        """Lengths of the parts of a source, as spelled in its vocabulary.

        ``sentences`` are the lengths of its sentences; without any, the spelling tells them.
        """
        if len(subwords) <= self.usual:
            return [len(subwords)]
        uncut = min(self.longest, int(UNCUT * self.usual))
        parts = []
        start = 0
        if self.language is None:
            sentences = [len(subwords)]
        for length in sentences or sentence_lengths(subwords, self.language or ""):
            sentence = subwords[start : start + length]
            start += length
            parts += [length] if length <= uncut else part_lengths(sentence, self.usual)
        return parts


def has_sentences(config: RunConfig) -> bool:
    """Whether a run translates sentences, by its metric; a source with features is whole, too."""
    return config.tokenizer.features is None and config.metrics.choose in OF_SENTENCES


def base_language(code: str) -> str:
    """The code of the language alone: ``zh`` of ``zh-Hans`` or ``zh_CN``."""
    return code.replace("_", "-").partition("-")[0].lower()


def find_sentences(text: str, language: str) -> Iterator[str]:
    """The sentences of a text, each with the blanks after it, by sentencex; without loss.

    None ends inside a placeholder or a URL, such as ``https://a.org/?Id=1``.
    """
    import sentencex

    # sentencex panics at "B\u00a0.": it takes every blank for one byte.
    plain = _NON_ASCII_BLANK.sub(" ", text)
    kept = [match.span() for match in PLACEHOLDER.finditer(plain)]
    start = end = 0
    for sentence in sentencex.segment(base_language(language), plain):
        end += len(sentence)
        before = bisect_left(kept, (end,))
        is_inside = before > 0 and end < kept[before - 1][1]
        # To the pattern, Chinese after a URL without a blank is a part of it.
        if is_inside and plain[end - 1 : end + 1].isascii():
            continue
        yield text[start:end]
        start = end


def encoded_sentences(
    text: str, subwords: Sequence[int], tokenizer: Tokenizer, language: str
) -> list[int]:
    """Lengths of the sentences of a text, if each alone has the subwords that it has there.

    Otherwise none, as in a script without blanks. `sentence_lengths` sees the text less well where
    a vocabulary spells bytes, or, as WordPiece, a blank before punctuation.
    """
    lengths = [len(sentence) for sentence in find_sentences(text, language)]
    # The blank after a sentence belongs to the next word.
    cuts = [len(text[:end].rstrip()) for end in accumulate(lengths[:-1])]
    tags = parse_tags(text)
    sentences = [
        with_tags(text[start:stop], tags) for start, stop in pairwise([0, *cuts, len(text)])
    ]
    rows = tokenizer.encode_source(sentences)
    rows = [row[tokenizer.leading_tags(row) :] for row in rows]
    same = list(chain.from_iterable(rows)) == list(subwords)
    return [len(row) for row in rows if row] if same else []


def sentence_lengths(subwords: Sequence[str], language: str) -> list[int]:
    """Lengths of the sentences, in subwords."""
    text = "".join(subwords).replace(WORD_START, " ")
    starts = list(accumulate(map(len, subwords), initial=0))
    cuts = [0]
    end = 0
    for sentence in find_sentences(text, language):
        # The blank after a sentence belongs to the next word.
        cut = bisect_left(starts, end + len(sentence.rstrip()))
        end += len(sentence)
        while cut < len(subwords) and is_tag(subwords[cut]):
            cut += 1  # a separator ends the sentence before it
        if cuts[-1] < cut < len(subwords):
            cuts.append(cut)
    return [stop - start for start, stop in pairwise([*cuts, len(subwords)])]


def part_lengths(subwords: Sequence[str], limit: int) -> list[int]:
    """Lengths of parts of at most ``limit`` subwords.

    A part ends at the last sentence that ends in it; else before the word that makes all parts
    about equally long; else there, inside a word.
    """
    lengths = []
    start = 0
    while len(subwords) - start > limit:
        remaining = len(subwords) - start
        parts = math.ceil(remaining / limit)
        equal = start + math.ceil(remaining / parts)
        # The largest cut first.
        cuts = range(start + limit, start, -1)
        words = [cut for cut in cuts if _is_between_words(subwords[cut - 1], subwords[cut])]
        ends = [
            cut for cut in words if subwords[cut - 1].rstrip(WORD_START).endswith(SENTENCE_ENDS)
        ]
        whole = [cut for cut in cuts if not _WITHIN_CHARACTER.match(subwords[cut])]
        cut = ends[0] if ends else min(words or whole or cuts, key=lambda cut: abs(cut - equal))
        lengths.append(cut - start)
        start = cut
    return [*lengths, len(subwords) - start]


_WITHIN_CHARACTER = re.compile("<0x[89AB]")
"""A subword that begins with a later byte of a character."""


def _is_between_words(before: str, after: str) -> bool:
    # Byte pairs with a suffix mark the end of a word.
    return after.startswith(WORD_START) or (len(before) > 1 and before.endswith(WORD_START))


def window_lengths(vectors: Float[np.ndarray, "length channel"], limit: int) -> list[int]:
    """Lengths of the windows of a source of vectors: at most ``limit``, each to a `quietest_cut`.

    The loudness of a vector is the mean of its numbers.
    """
    loudness = np.nanmean(vectors, axis=1)
    lengths = []
    start = 0
    while len(vectors) - start > limit:
        lengths.append(quietest_cut(loudness[start:], limit))
        start += lengths[-1]
    return [*lengths, len(vectors) - start]


@dataclass(frozen=True)
class Segment:
    """Source of a text, or of a part of it, with the constraints of its translation."""

    subwords: Any
    """Subword ids as a list; of a file, an array ``length channel``."""
    constraints: Constraints | None = None
    is_part: bool = False
    """Whether the text has more than one segment."""
    target_tags: tuple[int, ...] = ()
    """The tags that its translation begins with (``Tags.given``)."""
    times: Times | None = None
    """Of a sound."""
    language: str | None = None
    """Of a sound, if the model has tags of languages."""

    def requiring(self, phrases: Sequence[str]) -> "Segment":
        """The segment with more required phrases."""
        if not phrases:
            return self
        constraints = self.constraints or Constraints()
        must = (*constraints.must, *phrases)
        return replace(self, constraints=replace(constraints, must=must))


def source_windows(
    source: ReadSource, limits: SourceLimits, exact: int | None = None
) -> list[ReadSource]:
    """Cut a source of vectors into windows that the model knows; without vectors, none.

    ``exact`` is the length of each source of a model whose sounds are all equally long.
    """
    if not len(source.vectors):
        return []
    limit = min(limits.usual, limits.longest)
    if exact is not None:
        lengths = [exact] * -(-len(source.vectors) // exact)
    elif len(source.vectors) <= limit:
        lengths = [len(source.vectors)]
    else:
        lengths = window_lengths(source.vectors, limit)
    return [source.part(start, end) for start, end in pairwise(accumulate(lengths, initial=0))]


def check_fits(source: ReadSource, tokenizer: Tokenizer, limits: SourceLimits) -> None:
    """Raise InputError for a picture or an array that is longer than the model knows."""
    is_sound = tokenizer.vector_source.config.kind == "speech"
    if not is_sound and len(source.vectors) > limits.longest:
        raise InputError(
            f"{source}: {len(source.vectors):,} vectors, and the model reads {limits.longest:,}; "
            "give less, or train with a larger model.max_source_length"
        )


def file_segments(
    source: ReadSource,
    constraints: Constraints | None,
    tokenizer: Tokenizer,
    limits: SourceLimits,
    target_tags: Sequence[int] = (),
) -> list[Segment]:
    """`split_segments` of a file that has been read; raises InputError for terms.

    The tags and constraints are divided in the same way.
    """
    if constraints and constraints.terms:
        raise InputError("terms are words of a source text, and this source is a file")
    parts = source_windows(source, limits, tokenizer.vector_source.extractor.window)
    segments = []
    for index, part in enumerate(parts):
        of_part = constraints
        if constraints and len(parts) > 1:
            prefix = "" if index else constraints.prefix
            of_part = replace(constraints, must=(), prefix=prefix) or None
        segments.append(
            Segment(
                part.vectors,
                of_part,
                len(parts) > 1,
                tuple(target_tags),
                part.times,
                source.tags.source,
            )
        )
    return segments


def split_segments(
    subwords: list[int],
    constraints: Constraints | None,
    tokenizer: Tokenizer,
    limits: SourceLimits,
    target_tags: Sequence[int] = (),
    source: str | None = None,
) -> list[Segment]:
    """Split a text (``SourceLimits``), the ``source`` of these subwords; divide its constraints.

    Each part begins with the tags of the source, its translation with ``target_tags``. The first
    part has the prefix. Every part has the forbidden phrases, and the terms that occur in it. No
    part has a required phrase: the translator finds the best part for it.
    """
    if not subwords:
        return []
    count = tokenizer.leading_tags(subwords)
    whole = Segment(subwords, constraints, target_tags=tuple(target_tags))
    if len(subwords) <= min(limits.usual, limits.longest - count):
        return [whole]
    tags = subwords[:count]
    text = subwords[count:]
    if count:
        room = max(1, limits.longest - count)
        limits = replace(limits, longest=room, usual=min(limits.usual, room))
    sentences: list[int] = []
    if source is not None and limits.language is not None:
        sentences = encoded_sentences(source, text, tokenizer, limits.language)
    lengths = limits.split(tokenizer.source_subwords(text), sentences)
    if len(lengths) == 1:
        return [whole]
    segments: list[Segment] = []
    start = 0
    divided = replace(constraints, must=()) if constraints else None
    for length in lengths:
        part = [*tags, *text[start : start + length]]
        of_part = divided
        if divided and divided.terms:
            of_part = divided.on_source(tokenizer.decode_source([part])[0])
        segments.append(replace(whole, subwords=part, constraints=of_part, is_part=True))
        start += length
        # The first part alone has the prefix.
        if divided:
            divided = replace(divided, prefix="")
    return segments


def join_parts(texts: Iterable[str]) -> str:
    """Join the translations of parts, of which some may be blank."""
    parts = [text for text in texts if text]
    return blank_between(parts).join(parts)


def blank_between(texts: Iterable[str]) -> str:
    """What stands between texts that are joined: nothing in a script without blanks."""
    return "" if _is_unspaced("\n".join(texts)) else " "


def _is_unspaced(text: str) -> bool:
    """Whether most letters are of a script without blanks, and no blank is between two of them."""
    unspaced = [character.isalnum() and char_kind(character) == OTHER for character in text]
    has_blank_between = any(
        character == " " and before and after
        for before, character, after in zip(unspaced, text[1:], unspaced[2:], strict=False)
    )
    return 2 * sum(unspaced) > sum(map(str.isalnum, text)) and not has_blank_between


class SplitLines:
    """Counts the split texts of a call, or of a stream, for one warning at its end."""

    def __init__(self, name: Callable[[int], str]) -> None:
        self._name = name
        self._texts = self._split = self._parts = 0
        self._first = ""

    def count(self, parts: Iterable[int]) -> None:
        """Add the numbers of parts of the next texts."""
        for number in parts:
            if number > 1:
                self._first = self._first or self._name(self._texts)
                self._split += 1
                self._parts += number
            self._texts += 1

    def warn(self, usual: int) -> None:
        """Log the warning if any text was split; ``usual`` is that of ``SourceLimits``."""
        if self._split:
            texts = self._first
            if self._split > 1:
                texts += f" and {self._split - 1:,} more"
            log.warning(
                f"{texts}: longer than the {usual} subwords that the model knows; "
                f"translated in {self._parts:,} parts"
            )


@contextmanager
def counting_split_lines(
    limits: SourceLimits,
    outer: SplitLines | None = None,
    name: Callable[[int], str] = lambda _: "a text",
) -> Iterator[SplitLines]:
    """Count the split texts; without an ``outer`` count, log the warning at the end.

    ``name`` makes the name of a text from its index.
    """
    counted = SplitLines(name) if outer is None else outer
    try:
        yield counted
    finally:
        if outer is None:
            counted.warn(limits.usual)


def warn_about_length_limit(counts: Iterable[tuple[int, int]]) -> None:
    """Log one warning if any translation reached its limit (`length_counts` of translations)."""
    reached, searched = map(sum, zip(*counts, strict=True))
    if reached:
        log.warning(
            f"{reached:,} of {searched:,} outputs reached the maximum length and are cut; see "
            "decoding.max_length_ratio and decoding.max_length_offset (at most model.max_length)"
        )
