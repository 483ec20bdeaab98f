"""Examines the splits of a corpus, which may be larger than memory; results as plain values."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer.data.corpora.split import Split
from transformer.data.quality.base import SIDES, Finding
from transformer.data.quality.config import CHECKS, ExaminationConfig
from transformer.data.quality.factory import Checks
from transformer.data.quality.texts import line_location
from transformer.data.tokenization.tokenizer import Tokenizer

_PERCENTILES = (1, 50, 99)
LENGTHS = ("split", "pairs", "side", "mean", *(f"{p} %" for p in _PERCENTILES), "longest")
FINDINGS = ("split", "check", "pairs", "share", "allowed", "")
"""Columns of both tables."""

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Examination:
    """The result for all splits."""

    pairs: Mapping[str, int]
    unit: str
    lengths: Mapping[str, tuple[Counter[int], Counter[int]]]
    """By split: the number of sources, and of targets, of each length."""
    findings: tuple[Finding, ...]
    skipped: Mapping[str, str]
    """Checks that could not run, and what they need."""


def examine(
    splits: Mapping[str, Split], config: ExaminationConfig, tokenizer: Tokenizer | None = None
) -> Examination:
    """Run the `Checks` over every split; raises InputError if a text cannot be read."""
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
    enabled = (finding for finding in findings if finding.check in config.checks)
    found = sorted(enabled, key=lambda f: (order.index(f.split), CHECKS.index(f.check)))
    pairs = {name: source.total() for name, (source, _) in lengths.items()}
    unit = "tokens, estimated" if tokenizer is None else "tokens"
    return Examination(pairs, unit, lengths, tuple(found), checks.skipped)


def to_json(
    examination: Examination, splits: Mapping[str, Split], allowed: Mapping[str, float]
) -> Report:
    """Return everything as plain values, with the allowed fraction of each fault."""
    findings = [
        {
            "check": one.check,
            "split": one.split,
            "count": one.count,
            "share": one.fraction,
            "threshold": allowed[one.check],
            "exceeded": one.fraction > allowed[one.check],
            "examples": [
                {"place": line_location(splits[one.split], side, line), "line": line}
                | {"side": side, "said": message}
                for line, side, message in one.examples
            ],
        }
        for one in examination.findings
    ]
    return {
        "splits": {
            name: {
                "files": list(map(str, splits[name].corpus.paths)),
                "pairs": count,
                "lengths": {"unit": examination.unit}
                | dict(zip(SIDES, map(describe_lengths, examination.lengths[name]), strict=True)),
            }
            for name, count in examination.pairs.items()
        },
        "findings": findings,
        "skipped": dict(examination.skipped),
        "exceeded": [f"{one['split']}: {one['check']}" for one in findings if one["exceeded"]],
    }


def describe_lengths(counts: Counter[int]) -> dict[str, float]:
    """Return the mean of counted lengths, and lengths that a percentage does not exceed; or 0."""
    lengths, texts = map(list, zip(*(counts.items() or [(0, 1)]), strict=True))
    percentiles = {
        f"p{percent}": int(np.percentile(lengths, percent, weights=texts, method="inverted_cdf"))
        for percent in _PERCENTILES
    }
    mean = round(float(np.average(lengths, weights=texts)), 2)
    return {"mean": mean, **percentiles, "max": max(lengths)}


def length_rows(report: Report) -> Iterator[Sequence[str]]:
    """Yield counts and lengths of each split, in the columns of LENGTHS."""
    for name, split in report["splits"].items():
        for side in SIDES:
            mean, *percentiles = split["lengths"][side].values()
            shown = f"{mean:.1f}", *(f"{length:,}" for length in percentiles)
            yield name, f"{split['pairs']:,}", side, *shown


def finding_rows(report: Report) -> Iterator[Sequence[str]]:
    """Yield the faults that occur, in the columns of FINDINGS."""
    for finding in report["findings"]:
        if finding["count"]:
            mark = "too many" if finding["exceeded"] else ""
            count, limit = f"{finding['count']:,}", f"{finding['threshold']:.3%}"
            yield finding["split"], finding["check"], count, f"{finding['share']:.3%}", limit, mark


def example_lines(report: Report) -> Iterator[str]:
    """Yield a line for each example: where, which fault, what exactly."""
    for finding in report["findings"]:
        for example in finding["examples"]:
            yield f"{example['place']}: {finding['check']}: {example['said']}"
