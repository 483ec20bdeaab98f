"""Examines the splits of a corpus, line by line, and says what is wrong with each.

Streams, so that a corpus may be larger than memory. Does not know how a fault is found, nor how
much of it is too much.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformer.data.corpora.resolve import Split
from transformer.data.quality.base import Check, Finding
from transformer.data.quality.checks.one_side.alphabet import Alphabet
from transformer.data.quality.config import CHECKS, ExaminationConfig
from transformer.data.quality.factory import Checks
from transformer.data.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class Lengths:
    """How many texts of a side have each number of tokens."""

    counts: Counter[int]

    def percentile(self, percent: int) -> int:
        """Return the least length that so many of a hundred texts do not exceed; 0 of none."""
        wanted, seen = percent / 100 * self.counts.total(), 0
        for length in sorted(self.counts):
            seen += self.counts[length]
            if seen >= wanted:
                return length
        return 0

    def mean(self) -> float:
        """Return the mean length; 0 of no text."""
        total = self.counts.total()
        return sum(length * count for length, count in self.counts.items()) / max(1, total)


@dataclass(frozen=True)
class Examination:
    """What was found."""

    pairs: Mapping[str, int]
    """By split."""
    unit: str
    """Of the lengths."""
    lengths: Mapping[str, tuple[Lengths, Lengths]]
    """By split: of source and target."""
    findings: tuple[Finding, ...]
    """Of all checks, also those that found nothing."""
    skipped: Mapping[str, str]
    """What could not be looked for, and what it needs."""


def examine(
    splits: Mapping[str, Split], config: ExaminationConfig, tokenizer: Tokenizer | None = None
) -> Examination:
    """Read every split and say what is wrong.

    Args:
        splits: by name; "train" is among them.
        config: what to look for.
        tokenizer: counts tokens, and knows characters; None estimates.

    Raises:
        InputError: a text cannot be read.
    """
    checks = Checks(splits, config, tokenizer)
    leaks, alphabet = checks.leaks(), checks.alphabet()
    lengths, found = {}, []
    # The training text comes first: it tells which characters there are.
    for name in ("train", *(name for name in splits if name != "train")):
        in_training = name == "train"
        own = checks.of(name) + (leaks if in_training else [])
        lengths[name] = _see(checks, name, own, alphabet if in_training else None)
        if in_training and alphabet is not None:
            checks.learn(alphabet)
        found += [finding for check in own for finding in check.findings()]
    pairs = {name: source.counts.total() for name, (source, _) in lengths.items()}
    order = {check: position for position, check in enumerate(CHECKS)}
    wanted = (finding for finding in found if finding.check in config.checks)
    ranked = sorted(wanted, key=lambda one: (list(lengths).index(one.split), order[one.check]))
    return Examination(pairs, checks.count.unit, lengths, tuple(ranked), checks.skipped)


def _see(
    checks: Checks, split: str, own: Sequence[Check], alphabet: Alphabet | None
) -> tuple[Lengths, Lengths]:
    """Let all checks see the pairs of a split; returns the lengths of its sides."""
    sources: Counter[int] = Counter()
    targets: Counter[int] = Counter()
    seeing = [check.see for check in own]
    if alphabet is not None:
        seeing.append(alphabet.add)
    for pair in checks.pairs(split):
        sources[pair.source_tokens] += 1
        targets[pair.target_tokens] += 1
        for see in seeing:
            see(pair)
    return Lengths(sources), Lengths(targets)
