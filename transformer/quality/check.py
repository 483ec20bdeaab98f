"""A check and its findings: base classes, and the settings of an examination."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from transformer.common.escaping import escaped
from transformer.data.corpora.split import NumberedPair
from transformer.settings.corpora import CHECKS

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

# ASCII is removed as bytes, for speed; the expression removes the rest of Unicode.
_ASCII_NO_WORD = bytes(code for code in range(128) if not chr(code).isalnum())
_NO_WORD = re.compile(r"[\W_]+")
# Variation selectors only choose how the character before them is drawn.
_VARIATIONS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_QUOTED = 60


class Fault(NamedTuple):
    """A fault of one pair; no side means both sides."""

    side: Side | None
    message: str


class Example(NamedTuple):
    """A pair with a fault."""

    line: int
    side: Side | None
    message: str


@dataclass(frozen=True)
class Finding:
    """The frequency of a fault in a split."""

    check: str
    split: str
    count: int
    total: int
    examples: tuple[Example, ...]

    @property
    def fraction(self) -> float:
        return self.count / self.total if self.total else 0.0


class Check(ABC):
    """Finds one fault, or several faults with the same method."""

    needs_all_pairs: ClassVar[bool] = False
    """Whether `faults` works only after `see` was called with every pair."""

    def __init__(self, split: str, max_examples: int) -> None:
        self.split = split
        self.max_examples = max_examples

    @abstractmethod
    def see(self, pair: NumberedPair) -> None:
        """Examine the next pair."""

    @abstractmethod
    def findings(self) -> Iterable[Finding]:
        """Return the result, after all pairs were seen."""

    @abstractmethod
    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return the names of the faults of one pair."""

    def keep(self, pair: NumberedPair) -> None:
        """Record that the cleaned text keeps a pair; called before the next call of `faults`."""
        return None


FindFault = Callable[[NumberedPair], Fault | None]


class PairCheck(Check):
    """A check that looks at each pair alone."""

    def __init__(self, split: str, max_examples: int, name: str, find: FindFault) -> None:
        super().__init__(split, max_examples)
        self._name = name
        self._find = find
        self._count = self._total = 0
        self._examples: list[Example] = []

    def see(self, pair: NumberedPair) -> None:
        self._total += 1
        fault = self._find(pair)
        if fault is not None:
            self._count += 1
            # A line with several answers may have the fault in each.
            lines = [example.line for example in self._examples]
            if len(lines) < self.max_examples and pair.line not in lines:
                self._examples.append(Example(pair.line, *fault))

    def findings(self) -> Iterable[Finding]:
        yield Finding(self._name, self.split, self._count, self._total, tuple(self._examples))

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        return () if self._find(pair) is None else (self._name,)


def either_side(describe: Callable[[Side, str], str | None]) -> FindFault:
    """Apply a function that describes the fault of one side to the source, then to the target."""

    def find(pair: NumberedPair) -> Fault | None:
        for side, text in zip(SIDES, pair.texts, strict=True):
            message = describe(side, text)
            if message is not None:
                return Fault(side, message)
        return None

    return find


def bare(text: str) -> str:
    """Return the letters, their marks, and the digits of a text, without case."""
    if text.isascii():
        return text.lower().encode().translate(None, _ASCII_NO_WORD).decode()
    folded = unicodedata.normalize("NFKC", text).casefold().encode()
    return _NO_WORD.sub(_marks, folded.translate(None, _ASCII_NO_WORD).decode())


def _marks(match: re.Match[str]) -> str:
    """Return the vowel signs and tone marks among characters that are no letters or digits."""
    return "".join(
        character
        for character in match[0]
        if unicodedata.category(character) in ("Mn", "Mc") and character not in _VARIATIONS
    )


def quoted(text: str, index: int = 0) -> str:
    """Return the part of a text around an index, for a report; invisible characters are escaped."""
    start = max(0, min(index - _QUOTED // 2, len(text) - _QUOTED))
    end = start + _QUOTED
    return f'"{"…" if start else ""}{escaped(text[start:end])}{"…" if end < len(text) else ""}"'


@dataclass(frozen=True)
class ExaminationConfig:
    """Settings of an examination."""

    checks: frozenset[str] = frozenset(CHECKS)
    examples: int = 3
    ratio: float = 4.0
    max_length: int = 250
    """Maximum tokens of a side (``data.max_length``)."""
    languages: tuple[str, str] = ("en", "de")
    """Codes of source and target (``data.source``, ``data.target``). The language of a side whose
    name is no code, such as a key of JSONL, is detected from its text."""
    max_pairs: int | None = None
    """Examine only the first pairs of each split; None: all."""
