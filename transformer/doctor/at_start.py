"""What training looks at before it begins: the faults that cost little to find.

Each is a line of the log, a warning if it is more than a few; none stops the run. Of a large corpus
the first million pairs are examined. The result lies in the cache beside the encoded text. Does not
know models.
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformer.data.cache import locked, written_whole
from transformer.data.config import DataConfig
from transformer.data.mixture import configs_of
from transformer.data.splits import Split, splits_of_one
from transformer.doctor.config import ExaminationConfig
from transformer.doctor.examination import examine
from transformer.doctor.pair import place_of

CHECKS = frozenset({"empty", "copy", "misaligned", "replacement", "leak"})
"""What is looked for."""

# Of the pairs of a split, that may have a fault without a warning.
_FEW = 0.001
# To be raised when the checks change.
_VERSION = 2
# Pairs of a split: what they cost, some ten seconds, a large corpus would multiply.
_MOST = 1_000_000
# With stretches that are misaligned there may be several.
_EXAMPLES = 2

logger = logging.getLogger(__name__)


def log_faults(config: DataConfig) -> list[str]:
    """Examine each corpus of a run, unless the cache knows it, and log a line a finding.

    Args:
        config: of the run.

    Returns:
        The lines; none of a stream, which nobody has seen whole.

    Raises:
        InputError: a text cannot be read, or the cache not be written to.
    """
    if config.streaming:
        return []
    if config.corpora:
        return [line for one in configs_of(config).values() for line in log_faults(one)]
    splits = splits_of_one(config)
    cache = Path(config.cache).expanduser()
    texts = [f"{name} {split.fingerprint(cache)}" for name, split in splits.items()]
    key = hashlib.sha256(f"{_VERSION} {texts}".encode()).hexdigest()[:24]
    path = cache / f"doctor-{key}.json"
    with locked(cache):
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
        else:
            found = _examined(splits, config)
            with written_whole(path) as part:
                part.write_text(json.dumps(found), encoding="utf-8")
    lines = []
    for finding in found:
        share = finding["count"] / finding["total"]
        line = _said(finding, splits[finding["split"]])
        logger.log(logging.WARNING if share > _FEW else logging.INFO, "%s", line)
        lines.append(line)
    return lines


def _examined(splits: Mapping[str, Split], config: DataConfig) -> list[Mapping[str, object]]:
    """Return what was found, without its files: equal text may lie elsewhere."""
    examination = examine(
        splits,
        ExaminationConfig(
            checks=CHECKS,
            examples=_EXAMPLES,
            ratio=2.0,
            max_length=config.max_length,
            languages=(config.source, config.target),
            most=_MOST,
        ),
    )
    return [
        {
            "check": finding.check,
            "split": finding.split,
            "count": finding.count,
            "total": finding.total,
            "examples": finding.examples,
        }
        for finding in examination.findings
        if finding.count
    ]


def _said(finding: Mapping[str, object], split: Split) -> str:
    examples = finding["examples"]
    assert isinstance(examples, Sequence)
    where = "; ".join(f"{place_of(split, side, line)}: {said}" for line, side, said in examples)
    return (
        f"{finding['split']}: {finding['count']:,} of {finding['total']:,} pairs: "
        f"{finding['check']} ({where}); transformer doctor tells more"
    )
