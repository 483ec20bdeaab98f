"""Runs the checks over the splits of a corpus, which may be larger than memory."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from transformer.data.corpora.split import Split
from transformer.data.quality.base import Finding
from transformer.data.quality.config import CHECKS, ExaminationConfig
from transformer.data.quality.factory import Checks
from transformer.data.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class Examination:
    """The result for all splits."""

    pairs: Mapping[str, int]
    """Number of pairs by split."""
    unit: str
    """Unit of the lengths."""
    lengths: Mapping[str, tuple[Counter[int], Counter[int]]]
    """By split: the number of sources, and of targets, of each length."""
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
    lengths: dict[str, tuple[Counter[int], Counter[int]]] = {}
    findings: list[Finding] = []
    # The training text is read first: it defines the known characters.
    for name in ("train", *(name for name in splits if name != "train")):
        split_checks = checks.build(name)
        sources, targets = lengths[name] = Counter[int](), Counter[int]()
        for pair in checks.pairs(name):
            sources[pair.source_tokens] += 1
            targets[pair.target_tokens] += 1
            for check in split_checks:
                check.see(pair)
        findings += (finding for check in split_checks for finding in check.findings())
    order = list(lengths)
    findings = [finding for finding in findings if finding.check in config.checks]
    findings.sort(key=lambda found: (order.index(found.split), CHECKS.index(found.check)))
    pairs = {name: source.total() for name, (source, _) in lengths.items()}
    unit = "tokens, estimated" if tokenizer is None else "tokens"
    return Examination(pairs, unit, lengths, tuple(findings), checks.skipped)
