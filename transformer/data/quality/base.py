"""Base classes of the checks.

A check sees the pairs of a split one by one, counts those with a fault, and keeps a few examples,
so that a text of any length passes through it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from transformer.data.quality.pair import SIDES, NumberedPair, Side


class Example(NamedTuple):
    """A pair with a fault."""

    line: int
    side: Side | None
    """None: both sides."""
    message: str


@dataclass(frozen=True)
class Finding:
    """How often a fault occurs in a split."""

    check: str
    """Name of the fault, a field of `Thresholds`."""
    split: str
    count: int
    """Pairs with the fault."""
    total: int
    """Pairs examined."""
    examples: tuple[Example, ...]
    """The first of them."""

    @property
    def fraction(self) -> float:
        """Fraction of the pairs that have the fault; 0 without pairs."""
        return self.count / self.total if self.total else 0.0


@dataclass
class Check(ABC):
    """Looks for one kind of fault, or for several that are found in the same way."""

    split: str
    """Name of the split that the pairs belong to."""
    max_examples: int
    names: ClassVar[tuple[str, ...]]
    """Names of the faults."""
    needs_all_pairs: ClassVar[bool] = False
    """Whether `faults` gives an answer only after `see` was called with every pair."""

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
        """Note that a pair stays in the cleaned text; called before the next call of `faults`."""
        return None


class Fault(NamedTuple):
    """What is wrong with one pair."""

    side: Side | None
    message: str


@dataclass
class PairCheck(Check):
    """A check that looks at each pair alone."""

    name: ClassVar[str]
    _count: int = field(default=0, init=False)
    _total: int = field(default=0, init=False)
    _examples: list[Example] = field(default_factory=list, init=False)

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            cls.names = (cls.name,)

    @abstractmethod
    def fault(self, pair: NumberedPair) -> Fault | None:
        """Return what is wrong with a pair, or None."""

    def see(self, pair: NumberedPair) -> None:
        """Count the pair if it has the fault."""
        self._total += 1
        fault = self.fault(pair)
        if fault is not None:
            self._count += 1
            if len(self._examples) < self.max_examples:
                self._examples.append(Example(pair.line, *fault))

    def findings(self) -> Iterable[Finding]:
        """Return the only finding."""
        yield Finding(self.name, self.split, self._count, self._total, tuple(self._examples))

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return the name of the fault if the pair has it."""
        return () if self.fault(pair) is None else self.names


class SideCheck(PairCheck):
    """A check that looks at each side alone."""

    @abstractmethod
    def describe(self, side: Side, text: str) -> str | None:
        """Return what is wrong with one side, or None."""

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Return what is wrong with the source, or else with the target."""
        for side, text in zip(SIDES, pair.texts, strict=True):
            message = self.describe(side, text)
            if message is not None:
                return Fault(side, message)
        return None
