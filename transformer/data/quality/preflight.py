"""What training looks at before it begins: the faults that cost little to find.

Each is a line of the log, a warning if it is more than a few; none stops the run. Of a large corpus
the first million pairs are examined. The result lies in the cache beside the encoded text. Does not
know models.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice

from transformer.common.cache import locked
from transformer.common.files import given_path, written_whole
from transformer.data.config import DataConfig
from transformer.data.corpora.mixture import corpus_configs
from transformer.data.corpora.resolve import Split, find_corpus_splits
from transformer.data.quality.base import Finding
from transformer.data.quality.checks.corpus.test_leakage import HeldOutText, Leaks
from transformer.data.quality.config import ExaminationConfig
from transformer.data.quality.pair import NumberedPair, line_location, numbered
from transformer.data.quality.scan import examine

CHECKS = frozenset({"empty", "copy", "misaligned", "replacement", "leak"})
"""What is looked for."""

# Of the pairs of a split, that may have a fault without a warning.
_FEW = 0.001
# To be raised when the checks change.
_VERSION = 4
# Pairs of a split: what they cost, some ten seconds, a large corpus would multiply.
_MOST = 1_000_000
# With stretches that are misaligned there may be several.
_EXAMPLES = 2

_Corpora = Mapping[str, Mapping[str, Split]]

logger = logging.getLogger(__name__)


def log_faults(config: DataConfig) -> list[str]:
    """Examine the text of a run, unless the cache knows it, and log a line a finding.

    Of several corpora, held-out text is looked for in the training text of all.

    Args:
        config: of the run.

    Returns:
        The lines; none of a stream, which nobody has seen whole.

    Raises:
        InputError: a text cannot be read, or the cache not be written to.
    """
    if config.streaming:
        return []
    corpora = {name: find_corpus_splits(one) for name, one in _ones(config).items()}
    cache = given_path(config.cache)
    splits = {_named(split, name): corpora[name][split] for name, split in _indices(corpora)}
    texts = [
        f"{name} {split.fingerprint(cache)} {split.sentences}" for name, split in splits.items()
    ]
    key = hashlib.sha256(f"{_VERSION} {texts}".encode()).hexdigest()[:24]
    path = cache / f"doctor-{key}.json"
    with locked(cache):
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
        else:
            # Without its files: equal text may lie elsewhere.
            found = [asdict(finding) for finding in _found(corpora, config) if finding.count]
            with written_whole(path) as part:
                part.write_text(json.dumps(found), encoding="utf-8")
    lines = []
    for finding in found:
        share = finding["count"] / finding["total"]
        line = _said(finding, splits[finding["split"]])
        logger.log(logging.WARNING if share > _FEW else logging.INFO, "%s", line)
        lines.append(line)
    return lines


def _ones(config: DataConfig) -> Mapping[str, DataConfig]:
    """Return the config of each corpus by its name; one alone has none."""
    return corpus_configs(config) or {"": config}


def _indices(corpora: _Corpora) -> Iterator[tuple[str, str]]:
    return ((name, split) for name, splits in corpora.items() for split in splits)


def _named(split: str, corpus: str) -> str:
    """Return the name of a split as `find_splits` has it."""
    return f"{split}_{corpus}" if corpus else split


def _found(corpora: _Corpora, config: DataConfig) -> Iterator[Finding]:
    """Yield what is found, which may be nothing."""
    ones = _ones(config)
    for name, splits in corpora.items():
        examination = examine(
            splits,
            ExaminationConfig(
                checks=CHECKS - {"leak"} if len(corpora) > 1 else CHECKS,
                examples=_EXAMPLES,
                ratio=2.0,
                max_length=config.max_length,
                languages=(ones[name].source, ones[name].target),
                most=_MOST,
            ),
        )
        for finding in examination.findings:
            yield replace(finding, split=_named(finding.split, name))
    if len(corpora) > 1:
        yield from _leaks(corpora)


def _leaks(corpora: _Corpora) -> Iterator[Finding]:
    """Yield the held-out text of any corpus that stands in the training text of any."""
    held_out = HeldOutText()
    for name, split in _indices(corpora):
        if split != "train":
            for pair in _pairs(corpora[name][split]):
                held_out.add(_named(split, name), pair)
    for name, splits in corpora.items():
        leaks = Leaks(held_out, _EXAMPLES, f"the training text of {name}")
        for pair in islice(_pairs(splits["train"]), _MOST):
            leaks.see(pair)
        yield from (finding for finding in leaks.findings() if finding.check in CHECKS)


def _pairs(split: Split) -> Iterator[NumberedPair]:
    return (NumberedPair(line, source, target, 0, 0) for line, (source, target) in numbered(split))


def _said(finding: Mapping[str, object], split: Split) -> str:
    examples = finding["examples"]
    assert isinstance(examples, Sequence)
    where = "; ".join(
        f"{line_location(split, side, line)}: {said}" for line, side, said in examples
    )
    return (
        f"{finding['split']}: {finding['count']:,} of {finding['total']:,} pairs: "
        f"{finding['check']} ({where}); transformer doctor tells more"
    )
