"""Cheap checks of the text before a training run; none stops it."""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from transformer.common.cache import locked, remembered
from transformer.common.files import given_path
from transformer.data.config import DataConfig
from transformer.data.corpora.mixture import corpus_configs
from transformer.data.corpora.resolve import find_corpus_splits
from transformer.data.corpora.split import Split
from transformer.data.quality.base import Finding
from transformer.data.quality.checks.repeated_text import Leaks
from transformer.data.quality.config import ExaminationConfig
from transformer.data.quality.examination import examine
from transformer.data.quality.texts import line_location, numbered

_CHECKS = frozenset({"empty", "copy", "misaligned", "replacement", "leak"})
# A fault of a larger fraction of the pairs is a warning.
_MAX_FRACTION = 0.001
# Raise it when the checks change.
_VERSION = 6
# A million pairs cost some ten seconds.
_MAX_PAIRS, _EXAMPLES = 1_000_000, 2

logger = logging.getLogger(__name__)


def log_faults(config: DataConfig) -> list[str]:
    """Examine the text of a run, unless the cache has the result; log and return a line a finding.

    Frequent faults are warnings. With several corpora, the held-out text of each is looked for in
    the training text of all. A stream cannot be read beforehand.
    """
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
        found = (asdict(one) for one in _find(configs, corpora, splits) if one.count)
        return json.dumps(list(found))

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
