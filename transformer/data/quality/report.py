"""What an examination shows: rows of tables for people, plain values for programs.

Knows which findings are too many, by the shares that are allowed; not how they were found.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformer.data.corpora.resolve import Split
from transformer.data.quality.base import Finding
from transformer.data.quality.config import exceeded
from transformer.data.quality.pair import SIDES, line_location
from transformer.data.quality.scan import Examination, Lengths

_PERCENTILES = (1, 50, 99, 100)
_NAMES = (*(f"{percent} %" for percent in _PERCENTILES[:-1]), "longest")
LENGTHS = ("split", "pairs", "side", "mean", *_NAMES)
FINDINGS = ("split", "check", "pairs", "share", "allowed", "")
"""Columns of both tables."""


def too_many(examination: Examination, shares: Mapping[str, float]) -> list[str]:
    """Name the faults of which there are more than allowed, such as "train: duplicate"."""
    return [
        f"{finding.split}: {finding.check}"
        for finding in examination.findings
        if exceeded(shares, finding.check, finding.share)
    ]


def to_json(
    examination: Examination, splits: Mapping[str, Split], shares: Mapping[str, float]
) -> dict[str, Any]:
    """Return everything as plain values.

    Args:
        examination: what was found.
        splits: the texts, which know their files.
        shares: what is allowed of each fault.
    """
    return {
        "splits": {
            name: {
                "files": list(map(str, splits[name].corpus.paths)),
                "pairs": count,
                "lengths": {"unit": examination.unit}
                | {
                    side: _lengths(lengths)
                    for side, lengths in zip(SIDES, examination.lengths[name], strict=True)
                },
            }
            for name, count in examination.pairs.items()
        },
        "findings": [_finding(one, splits, shares) for one in examination.findings],
        "skipped": dict(examination.skipped),
        "exceeded": too_many(examination, shares),
    }


def _lengths(lengths: Lengths) -> dict[str, float]:
    found = {f"p{percent}": lengths.percentile(percent) for percent in _PERCENTILES[:-1]}
    return {"mean": round(lengths.mean(), 2), **found, "max": lengths.percentile(100)}


def _finding(
    finding: Finding, splits: Mapping[str, Split], shares: Mapping[str, float]
) -> dict[str, Any]:
    return {
        "check": finding.check,
        "split": finding.split,
        "count": finding.count,
        "share": finding.share,
        "threshold": shares[finding.check],
        "exceeded": exceeded(shares, finding.check, finding.share),
        "examples": [
            {
                "place": line_location(splits[finding.split], side, line),
                "line": line,
                "side": side,
                "said": said,
            }
            for line, side, said in finding.examples
        ],
    }


def length_rows(examination: Examination) -> Iterator[Sequence[str]]:
    """Yield counts and lengths of each split, in the columns of LENGTHS."""
    for split, count in examination.pairs.items():
        for side, lengths in zip(SIDES, examination.lengths[split], strict=True):
            percentiles = [f"{lengths.percentile(percent):,}" for percent in _PERCENTILES]
            yield split, f"{count:,}", side, f"{lengths.mean():.1f}", *percentiles


def finding_rows(examination: Examination, shares: Mapping[str, float]) -> Iterator[Sequence[str]]:
    """Yield what was found, how much of it is allowed, and what is too much, as in FINDINGS."""
    for finding in examination.findings:
        if finding.count:
            mark = "too many" if exceeded(shares, finding.check, finding.share) else ""
            shown = f"{finding.share:.3%}", f"{shares[finding.check]:.3%}"
            yield finding.split, finding.check, f"{finding.count:,}", *shown, mark


def example_lines(examination: Examination, splits: Mapping[str, Split]) -> Iterator[str]:
    """Yield a line for each example: where, which fault, what exactly."""
    for finding in examination.findings:
        for line, side, said in finding.examples:
            index = line_location(splits[finding.split], side, line)
            yield f"{index}: {finding.check}: {said}"
