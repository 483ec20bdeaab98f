"""Shows an examination: table rows and lines for people, plain values for programs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformer.data.corpora.resolve import Split
from transformer.data.quality.base import Finding
from transformer.data.quality.pair import SIDES
from transformer.data.quality.scan import Examination, Lengths
from transformer.data.quality.texts import line_location

_PERCENTILES = (1, 50, 99)
LENGTHS = ("split", "pairs", "side", "mean", *(f"{p} %" for p in _PERCENTILES), "longest")
FINDINGS = ("split", "check", "pairs", "share", "allowed", "")
"""Columns of both tables."""


def too_many(examination: Examination, allowed: Mapping[str, float]) -> list[str]:
    """Return the faults that exceed the allowed fraction, such as "train: duplicate"."""
    found = (finding for finding in examination.findings if _exceeds(finding, allowed))
    return [f"{finding.split}: {finding.check}" for finding in found]


def _exceeds(finding: Finding, allowed: Mapping[str, float]) -> bool:
    return finding.fraction > allowed[finding.check]


def to_json(
    examination: Examination, splits: Mapping[str, Split], allowed: Mapping[str, float]
) -> dict[str, Any]:
    """Return everything as plain values.

    Args:
        examination: the result.
        splits: the texts, which know their files.
        allowed: the allowed fraction of each fault.
    """
    return {
        "splits": {
            name: {
                "files": list(map(str, splits[name].corpus.paths)),
                "pairs": count,
                "lengths": {
                    "unit": examination.unit,
                    **dict(zip(SIDES, map(_lengths, examination.lengths[name]), strict=True)),
                },
            }
            for name, count in examination.pairs.items()
        },
        "findings": [_finding(found, splits, allowed) for found in examination.findings],
        "skipped": dict(examination.skipped),
        "exceeded": too_many(examination, allowed),
    }


def _lengths(lengths: Lengths) -> dict[str, float]:
    percentiles = {f"p{percent}": lengths.percentile(percent) for percent in _PERCENTILES}
    return {"mean": round(lengths.mean(), 2), **percentiles, "max": lengths.percentile(100)}


def _finding(
    finding: Finding, splits: Mapping[str, Split], allowed: Mapping[str, float]
) -> dict[str, Any]:
    split = splits[finding.split]
    return {
        "check": finding.check,
        "split": finding.split,
        "count": finding.count,
        "share": finding.fraction,
        "threshold": allowed[finding.check],
        "exceeded": _exceeds(finding, allowed),
        "examples": [
            {"place": line_location(split, side, line), "line": line, "side": side, "said": message}
            for line, side, message in finding.examples
        ],
    }


def length_rows(examination: Examination) -> Iterator[Sequence[str]]:
    """Yield counts and lengths of each split, in the columns of LENGTHS."""
    for split, count in examination.pairs.items():
        for side, lengths in zip(SIDES, examination.lengths[split], strict=True):
            percentiles = [f"{lengths.percentile(percent):,}" for percent in (*_PERCENTILES, 100)]
            yield split, f"{count:,}", side, f"{lengths.mean():.1f}", *percentiles


def finding_rows(examination: Examination, allowed: Mapping[str, float]) -> Iterator[Sequence[str]]:
    """Yield the faults that occur, in the columns of FINDINGS."""
    for finding in examination.findings:
        if finding.count:
            mark = "too many" if _exceeds(finding, allowed) else ""
            fractions = f"{finding.fraction:.3%}", f"{allowed[finding.check]:.3%}"
            yield finding.split, finding.check, f"{finding.count:,}", *fractions, mark


def example_lines(examination: Examination, splits: Mapping[str, Split]) -> Iterator[str]:
    """Yield a line for each example: where, which fault, what exactly."""
    for finding in examination.findings:
        for line, side, message in finding.examples:
            location = line_location(splits[finding.split], side, line)
            yield f"{location}: {finding.check}: {message}"
