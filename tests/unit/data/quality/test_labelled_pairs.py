"""Pairs that were labelled by eye, cleaned by default behind a text that is clean."""

from collections import defaultdict

import pytest

from benchmarks.doctor import PAIRS, cleaned
from tests.unit.data.quality.texts import clean_texts


@pytest.fixture(scope="module")
def found() -> dict[str, list[bool]]:
    """By label, whether each pair is rejected for that, or mended; of the good, for anything."""
    rows = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    text = clean_texts()["train"]
    result = cleaned([*text, *((source, target) for _, source, target in rows)], ("en", "de"))
    verdicts: dict[str, list[bool]] = defaultdict(list)
    for index, (label, *_) in enumerate(rows, start=len(text)):
        faults = result.faults.get(index, [])
        if label == "mended":
            verdicts[label].append(not faults and index in result.repaired)
        else:
            verdicts[label].append(bool(faults) if label == "good" else label in faults)
    return verdicts


def test_no_good_pair_is_rejected(found: dict[str, list[bool]]) -> None:
    assert len(found["good"]) > 100
    assert not any(found["good"])


# The grammar of pocket has few of the words of a copy.
@pytest.mark.parametrize(
    ("label", "share"),
    [("mended", 1), ("numbers", 0.5), ("urls", 1), ("markup", 1), ("ratio", 0.8), ("copy", 0.3)],
)
def test_faults_are_found(label: str, share: float, found: dict[str, list[bool]]) -> None:
    assert sum(found[label]) >= share * len(found[label])
