"""Flags the failures of one output by its text, length and probability (docs/failures.md)."""

import re
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise
from math import inf, log
from pathlib import Path
from typing import NamedTuple

from transformer.checkpoint.run_directory import run_folder
from transformer.data.corpora.split import NumberedPair
from transformer.data.text.placeholders import keeps_placeholders
from transformer.data.tokenization.tags import UNTAGGED, SourceTags, parse_tags
from transformer.quality.checks.characters import describe_foreign_script, find_replacement
from transformer.quality.checks.languages import Language, base_code, is_same
from transformer.quality.checks.lengths import find_empty_side, longest_run
from transformer.quality.checks.markup import same_tags
from transformer.quality.checks.numbers_and_urls import (
    find_different_numbers,
    find_lost_number,
)
from transformer.quality.failures.thresholds import Thresholds
from transformer.settings.data import DataConfig

FLAGS = (
    "empty",
    "repetition",
    "detached",
    "copy",
    "wrong_language",
    "under_translation",
    "over_translation",
    "numbers",
    "names",
    "placeholders",
    "unknown",
    "unfinished",
    "low_confidence",
)
"""Names of all flags, in the order of reports."""

ACTING = frozenset({"empty", "repetition", "copy", "numbers", "placeholders", "unfinished"})
"""Flags for which a retry looks for another output: they are seldom wrong."""

_NGRAM = 4
# Occurrences of a 4-gram beyond those of the source.
_MORE_THAN_SOURCE = 2
# A text with longer words has no blanks between words: its characters are counted.
_LONGEST_WORD = 20
# Repetitions in a row of a phrase of up to three words.
_IN_A_ROW = 3
# Three repetitions in a row of some characters of a word.
_AGAIN = re.compile(r"([^\W\d_]\S{2,100}?)\1{2,}")
_WORD = re.compile(r"[^\W\d_]+")
_MIN_COPIED = 3
_COMMON_FRACTION = 0.2
_MIN_COMMON = 3
# A length that no direction has.
_FACTOR = log(4)
_TAG = re.compile(r"</?[^\W\d]\w*\s?/?>")
_UNKNOWN = re.compile("\u2047|<unk>")
_SENTENCE_ENDS = ".!?:…\"'„“”«»‚‘’-–—("
_QUOTES = "\"'„“”«»‚‘’()[].,;:!?…"


class Output(NamedTuple):
    """An output of a model, or a reference."""

    text: str
    log_probability: float | None = None
    """Per token, the end included, in nats; None if it is unknown."""
    is_unfinished: bool = False
    """Whether the search was cut at its maximum length."""


class Detector:
    """Flags single outputs; ``detects`` finds third languages by py3langid, loaded in a second.

    ``tags`` are those of a source without any. If the tags of a source ask for another direction
    than that of the run, the thresholds of the run do not hold.
    """

    def __init__(
        self, thresholds: Thresholds, *, detects: bool = True, tags: SourceTags = UNTAGGED
    ) -> None:
        self.thresholds = thresholds
        self._tags = tags
        self._scripts = frozenset(thresholds.scripts)
        directions = thresholds.directions
        self._own = None
        if len(directions) == 1:
            common = map(frozenset, thresholds.common)
            source, self._own = map(Language, map(base_code, directions[0]), common)
            self._source = source
            self._only_source = source.common - self._own.common
        self._detects = detects and find_spec("py3langid") is not None
        absent = {"copy": not directions, "wrong_language": self._own is None}
        absent["low_confidence"] = thresholds.low_confidence is None
        self.names = tuple(flag for flag in FLAGS if not absent.get(flag))
        """The flags that it looks for."""

    @classmethod
    def load(cls, checkpoint: Path, data: DataConfig, tags: SourceTags = UNTAGGED) -> "Detector":
        """With the thresholds of the run of a checkpoint, which was trained on ``data``."""
        return cls(Thresholds.read(run_folder(checkpoint), data), tags=tags)

    def flags(self, source: str, output: Output, reference: str | None = None) -> tuple[str, ...]:
        """The flags of an output; ``names`` needs a reference. A blank source has none."""
        if not source.strip():
            return ()
        if not self._is_usual(parse_tags(source).over(self._tags)):
            other = Detector(Thresholds(self.thresholds.directions), detects=False)
            return other.flags(str(source), output, reference)
        text = output.text
        usual = self.thresholds
        pair = NumberedPair(0, source, text)
        fault = find_empty_side(pair)
        if fault is not None and fault.side == "target":
            return ("empty",)
        length = self._length(source, text)
        copied = bool(usual.directions) and _is_copy(source, text)
        lowest = -inf if usual.low_confidence is None else usual.low_confidence
        flagged = {
            "repetition": _is_repetitive(source, text),
            "copy": copied,
            "wrong_language": not copied and self._is_foreign(source, text),
            "under_translation": length < 0,
            "over_translation": length > 0,
            "numbers": _changes_numbers(pair),
            "names": bool(reference and _names(source) & _names(reference) - _words(text)),
            "placeholders": _loses_placeholders(source, text),
            "unknown": _has_unknown(pair),
            "unfinished": output.is_unfinished,
            "low_confidence": (output.log_probability or 0.0) < lowest,
        }
        return tuple(name for name, is_flagged in flagged.items() if is_flagged)

    def _is_usual(self, tags: SourceTags) -> bool:
        """Whether tags ask for the direction of the run, if it has a single one."""
        if len(self.thresholds.directions) != 1:
            return True
        asked = zip((tags.source, tags.target), self.thresholds.directions[0], strict=True)
        return all(tag is None or base_code(tag) == base_code(code) for tag, code in asked)

    def _length(self, source: str, text: str) -> int:
        """-1 for a text that is much shorter than usual, 1 for a longer one, otherwise 0."""
        usual = self.thresholds
        by_factor, tails = usual.lengths.deviation(len(source.strip()), len(text.strip()))
        if usual.tails is None:
            return (by_factor > _FACTOR) - (by_factor < -_FACTOR)
        return (tails > usual.tails[1]) - (tails < usual.tails[0])

    def _is_foreign(self, source: str, text: str) -> bool:
        if self._own is None:
            return False
        if describe_foreign_script({"target": self._scripts}, "target", text):
            return True
        words = {word.lower() for word in _WORD.findall(text)}
        if len(words & self._own.common) >= _COMMON_FRACTION * len(words):
            return False
        if len(words & self._only_source) >= max(_MIN_COMMON, _COMMON_FRACTION * len(words)):
            return True
        detected = self._own.detect_foreign(text) if self._detects else None
        # A quotation in a third language may stay.
        return detected is not None and detected != self._source.detect_foreign(source)


def _is_repetitive(source: str, text: str) -> bool:
    """Whether a 4-gram occurs more often than in the source, or a phrase again and again."""
    words = units(text)
    repeated = len(words) - len(set(words))
    if repeated >= _NGRAM:
        texts = words, units(source)
        most, most_of_source = (max(_ngrams(of_text), default=0) for of_text in texts)
        if most - most_of_source >= _MORE_THAN_SOURCE:
            return True
    if repeated and longest_run(text) >= _IN_A_ROW > longest_run(source):
        return True
    return _AGAIN.search(text) is not None and _AGAIN.search(source) is None


def units(text: str) -> list[str]:
    """The words of a text in lower case, or its characters if no blanks stand between words."""
    words = text.lower().split()
    return words if len(words) * _LONGEST_WORD >= len(text) else list(text.lower())


def _ngrams(units: list[str]) -> list[int]:
    return list(Counter(zip(*(units[i:] for i in range(_NGRAM)), strict=False)).values())


def _is_copy(source: str, text: str) -> bool:
    """Whether the words of the source are left; names and numbers alone may be."""
    if source != text and not is_same(source, text):
        return False
    if len(_WORD.findall(" ".join(units(text)))) < _MIN_COPIED:
        return False
    # Scripts without capitals do not show what is a name.
    return any(word == word.lower() for word in text.split() if _WORD.search(word))


def _changes_numbers(pair: NumberedPair) -> bool:
    if not any(map(str.isdigit, pair.source)):
        return False
    return find_lost_number(pair) is not None or find_different_numbers(pair) is not None


def _loses_placeholders(source: str, text: str) -> bool:
    if not keeps_placeholders(source, text) or not same_tags(source, text):
        return True
    return "<" in source and bool(Counter(_TAG.findall(source)) - Counter(_TAG.findall(text)))


def _has_unknown(pair: NumberedPair) -> bool:
    if pair.target.isascii() and "<" not in pair.target:
        return False
    fault = find_replacement(pair)
    lost = fault is not None and fault.side == "target"
    return lost or bool(_UNKNOWN.search(pair.target) and not _UNKNOWN.search(pair.source))


def _names(text: str) -> set[str]:
    """Capitalized words that do not begin a sentence."""
    return {
        word.strip(_QUOTES)
        for before, word in pairwise(text.split())
        if word.lstrip(_QUOTES)[:1].isupper() and before[-1] not in _SENTENCE_ENDS
    }


def _words(text: str) -> set[str]:
    return {word.strip(_QUOTES) for word in text.split()}
