"""Examines the splits of a corpus, which may be larger than memory; results as plain values."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from transformer.common.errors import InputError
from transformer.common.files import given_path, locked, remembered
from transformer.data.corpora.resolve import (
    as_files,
    corpus_configs,
    find_corpus_splits,
    no_training_text,
)
from transformer.data.corpora.split import Split, numbered
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.quality.check import SIDES, ExaminationConfig, Finding, Side
from transformer.quality.checks.repeated_text import Leaks
from transformer.quality.corpus_checks import Checks
from transformer.settings.corpora import CHECKS
from transformer.settings.data import DataConfig

_PERCENTILES = (1, 50, 99)
LENGTHS = ("split", "pairs", "side", "mean", *(f"{p} %" for p in _PERCENTILES), "longest")
FINDINGS = ("split", "check", "pairs", "share", "allowed", "")

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
        sources = Counter[int]()
        targets = Counter[int]()
        lengths[name] = (sources, targets)
        for pair in checks.pairs(name):
            sources[pair.source_tokens] += 1
            targets[pair.target_tokens] += 1
            for check in split_checks:
                check.see(pair)
        findings += (finding for check in split_checks for finding in check.findings())
    order = list(lengths)
    enabled = (finding for finding in findings if finding.check in config.checks)
    ordered = sorted(enabled, key=lambda f: (order.index(f.split), CHECKS.index(f.check)))
    pairs = {name: source.total() for name, (source, _) in lengths.items()}
    unit = "tokens, estimated" if tokenizer is None else "tokens"
    return Examination(pairs, unit, lengths, tuple(ordered), checks.skipped)


def to_json(
    examination: Examination, splits: Mapping[str, Split], allowed: Mapping[str, float]
) -> Report:
    """Return everything as plain values, with the allowed fraction of each fault."""
    findings = [
        {
            "check": finding.check,
            "split": finding.split,
            "count": finding.count,
            "share": finding.fraction,
            "threshold": allowed[finding.check],
            "exceeded": finding.fraction > allowed[finding.check],
            "examples": [
                {"place": line_location(splits[finding.split], side, line), "line": line}
                | {"side": side, "said": message}
                for line, side, message in finding.examples
            ],
        }
        for finding in examination.findings
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
        "exceeded": [
            f"{finding['split']}: {finding['check']}" for finding in findings if finding["exceeded"]
        ],
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
            count = f"{finding['count']:,}"
            limit = f"{finding['threshold']:.3%}"
            yield finding["split"], finding["check"], count, f"{finding['share']:.3%}", limit, mark


def example_lines(report: Report) -> Iterator[str]:
    """Yield a line for each example: where, which fault, what exactly."""
    for finding in report["findings"]:
        for example in finding["examples"]:
            yield f"{example['place']}: {finding['check']}: {example['said']}"


_CHECKS = frozenset({"empty", "copy", "misaligned", "replacement", "leak"})
# A fault of a larger fraction of the pairs is a warning.
_MAX_FRACTION = 0.001
# Raise it when the checks change.
_VERSION = 6
# A million pairs cost some ten seconds.
_MAX_PAIRS = 1_000_000
_EXAMPLES = 2

logger = logging.getLogger(__name__)


def log_faults(config: DataConfig) -> list[str]:
    """Examine the text of a run, or take the result from the cache; log a line a finding."""
    if config.streaming:
        return []
    configs = corpus_configs(config) or {"": config}
    corpora = {name: find_corpus_splits(corpus) for name, corpus in configs.items()}
    splits = {
        _full_name(split, name): text for name in corpora for split, text in corpora[name].items()
    }
    cache = given_path(config.cache)
    texts = [f"{name} {text.fingerprint(cache)} {text.sentences}" for name, text in splits.items()]

    def find() -> str:
        # Without file names: equal text may lie elsewhere.
        findings = (asdict(finding) for finding in _find(configs, corpora, splits) if finding.count)
        return json.dumps(list(findings))

    with locked(cache):
        findings = json.loads(
            remembered(cache, f"doctor {_VERSION} {texts} {config.max_ratio}", find)
        )
    lines = [_describe(finding, splits[finding["split"]]) for finding in findings]
    for finding, line in zip(findings, lines, strict=True):
        is_frequent = finding["count"] / finding["total"] > _MAX_FRACTION
        logger.log(logging.WARNING if is_frequent else logging.INFO, "%s", line)
    return lines


def _describe(finding: Mapping[str, Any], split: Split) -> str:
    examples = "; ".join(
        f"{line_location(split, side, line)}: {message}"
        for line, side, message in finding["examples"]
    )
    advice = "; data.max_ratio=null is for text whose lengths do not go together"
    return (
        f"{finding['split']}: {finding['count']:,} of {finding['total']:,} pairs: "
        f"{finding['check']} ({examples}); transformer doctor shows more"
        f"{advice if finding['check'] == 'misaligned' else ''}"
    )


def _full_name(split: str, corpus: str) -> str:
    return f"{split}_{corpus}" if corpus else split


def _find(
    configs: Mapping[str, DataConfig],
    corpora: Mapping[str, Mapping[str, Split]],
    splits: Mapping[str, Split],
) -> Iterator[Finding]:
    for name, texts in corpora.items():
        # Without a ratio of lengths, such as that of a text and its summary, lines tell no shift.
        checks = _CHECKS - {"misaligned"} if configs[name].max_ratio is None else _CHECKS
        settings = ExaminationConfig(
            checks=checks - {"leak"} if len(corpora) > 1 else checks,
            examples=_EXAMPLES,
            ratio=2.0,
            max_length=configs[name].max_length,
            languages=(configs[name].source, configs[name].target),
            max_pairs=_MAX_PAIRS,
        )
        for finding in examine(texts, settings).findings:
            yield replace(finding, split=_full_name(finding.split, name))
    if len(corpora) > 1:
        training = {_full_name("train", name): name for name in corpora}
        leaks = Leaks({n: text for n, text in splits.items() if n not in training}, _EXAMPLES)
        for split, name in training.items():
            leaks.training_text = f"the training text of {name}"
            for pair in islice(numbered(splits[split]), _MAX_PAIRS):
                leaks.see(pair)
        yield from (finding for finding in leaks.findings() if finding.check in _CHECKS)


def given_texts(data: DataConfig) -> dict[str, Split]:
    """Return the texts of a corpus by split, without tags.

    Raises InputError if one has no line, or if there is no training text, from which the checks
    learn what is usual.
    """
    if data.corpus == "folder":
        data = as_files(data)
    # What is held out would be read by no check of the training text.
    data = replace(data, validation_size=0, test_size=0)
    if data.corpus == "files":
        # Without document_key, the corpus has no separators between documents.
        data = replace(data, document_key=None, target_tag=False)
    texts = find_corpus_splits(data)
    if "train" not in texts:
        raise no_training_text(data)
    for name, text in texts.items():
        if next(numbered(text), None) is None:
            files = ", ".join(map(str, text.corpus.paths))
            raise InputError(f"{files}: the {name} text has no line; give another data.{name}")
    return texts


def line_location(split: Split, side: Side | None, line: int) -> str:
    """Return ``FILE:LINE``: the file of the side, or for None the file of the source."""
    return f"{split.corpus.paths[-1 if side == 'target' else 0]}:{line}"
