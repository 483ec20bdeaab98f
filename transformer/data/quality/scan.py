"""Runs the checks over the splits of a corpus, which may be larger than memory."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from transformer.data.corpora.split import Split
from transformer.data.quality.base import Finding
from transformer.data.quality.config import CHECKS, ExaminationConfig
from transformer.data.quality.factory import Checks
from transformer.data.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class Lengths:
    """The number of texts of each length in tokens, for one side."""

    counts: Counter[int]

    def percentile(self, percent: int) -> int:
        """Return the smallest length that this percentage of the texts does not exceed, or 0."""
        lengths = sorted(self.counts)
        texts = list(accumulate(self.counts[length] for length in lengths))
        return lengths[bisect_left(texts, percent / 100 * texts[-1])] if texts else 0

    def mean(self) -> float:
        """Return the mean length; 0 without texts."""
        total = sum(length * count for length, count in self.counts.items())
        return total / max(1, self.counts.total())


@dataclass(frozen=True)
class Examination:
    """The result for all splits."""

    pairs: Mapping[str, int]
    """Number of pairs by split."""
    unit: str
    """Unit of the lengths."""
    lengths: Mapping[str, tuple[Lengths, Lengths]]
    """By split: lengths of source and target."""
    findings: tuple[Finding, ...]
    """Of all checks, also of those that found nothing."""
    skipped: Mapping[str, str]
    """Checks that could not run, and what they need."""


def examine(
    splits: Mapping[str, Split], config: ExaminationConfig, tokenizer: Tokenizer | None = None
) -> Examination:
    """Run the checks over every split; the arguments are those of `Checks`.

    Raises:
        InputError: a text cannot be read.
    """
    checks = Checks(splits, config, tokenizer)
    lengths: dict[str, tuple[Lengths, Lengths]] = {}
    findings: list[Finding] = []
    # The training text is read first: it defines the known characters.
    for name in ("train", *(name for name in splits if name != "train")):
        split_checks = checks.build(name)
        sources, targets = lengths[name] = Lengths(Counter()), Lengths(Counter())
        for pair in checks.pairs(name):
            sources.counts[pair.source_tokens] += 1
            targets.counts[pair.target_tokens] += 1
            for check in split_checks:
                check.see(pair)
        findings += (finding for check in split_checks for finding in check.findings())
    order = list(lengths)
    findings = [finding for finding in findings if finding.check in config.checks]
    findings.sort(key=lambda found: (order.index(found.split), CHECKS.index(found.check)))
    pairs = {name: source.counts.total() for name, (source, _) in lengths.items()}
    unit = "tokens, estimated" if tokenizer is None else "tokens"
    return Examination(pairs, unit, lengths, tuple(findings), checks.skipped)
