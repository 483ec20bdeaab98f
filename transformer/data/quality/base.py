"""What every check of a text is: it sees the pairs one by one, and then says what it found.

Does not know any fault by name. A check keeps counts and a few examples, so that a text of any
length passes through it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from transformer.data.quality.pair import SIDES, NumberedPair, Side


class Example(NamedTuple):
    """One fault, for a person to look at."""

    line: int
    side: Side | None
    """None: of both together."""
    said: str
    """What is wrong, in a few words."""


@dataclass(frozen=True)
class Finding:
    """How often a fault occurs in a split."""

    check: str
    """Its name, as ``thresholds`` has it."""
    split: str
    count: int
    """Pairs that have it."""
    total: int
    """Pairs that were looked at."""
    examples: tuple[Example, ...]
    """The first of them."""

    @property
    def share(self) -> float:
        """Of the pairs, how many have it."""
        return self.count / self.total if self.total else 0.0


@runtime_checkable
class Check(Protocol):
    """Looks for one kind of fault, or for several that are found in one way."""

    names: ClassVar[tuple[str, ...]]
    """Of the faults that it finds."""
    whole: ClassVar[bool]
    """Whether a pair can be judged only when all pairs of the text were seen."""

    def see(self, pair: NumberedPair) -> None:
        """Look at the next pair of the text."""

    def findings(self) -> Iterable[Finding]:
        """Say what was found; call it when all pairs were seen."""

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return the names of the faults of this pair; where ``whole``, all are seen first."""

    def keep(self, pair: NumberedPair) -> None:
        """Know that this pair, whose faults were asked for, stays in a text that is cleaned."""
        return None


class Fault(NamedTuple):
    """What is wrong with one pair."""

    side: Side | None
    said: str


class PairCheck(Check, ABC):
    """A check that needs to see nothing but the pair itself."""

    name: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    whole: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            cls.names = (cls.name,)

    def __init__(self, split: str, most: int) -> None:
        """Begin to count.

        Args:
            split: that the pairs are of.
            most: examples to keep.
        """
        self._split = split
        self._most = most
        self._count = self._total = 0
        self._examples: list[Example] = []

    @abstractmethod
    def fault(self, pair: NumberedPair) -> Fault | None:
        """Return what is wrong with a pair, or None."""

    def see(self, pair: NumberedPair) -> None:
        """Count the pair if it has the fault."""
        self._total += 1
        fault = self.fault(pair)
        if fault is not None:
            self._count += 1
            if len(self._examples) < self._most:
                self._examples.append(Example(pair.line, *fault))

    def findings(self) -> Iterable[Finding]:
        """Return the one finding."""
        yield Finding(self.name, self._split, self._count, self._total, tuple(self._examples))

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return the name of the fault if the pair has it."""
        return () if self.fault(pair) is None else self.names


class SideCheck(PairCheck):
    """A check of each text by itself."""

    @abstractmethod
    def said(self, side: Side, text: str) -> str | None:
        """Return what is wrong with one text, or None."""

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Return what is wrong with the source, or else with the target."""
        for side, text in zip(SIDES, (pair.source, pair.target), strict=True):
            said = self.said(side, text)
            if said is not None:
                return Fault(side, said)
        return None
