"""Pairs that were labeled by eye, cleaned by default behind a text that is clean."""

import json
from collections import defaultdict
from pathlib import Path

from benchmarks.data.doctor import PAIRS, cleaned
from tests.unit.quality.texts import clean_texts


def test_of_labeled_pairs_the_good_stay_and_most_faults_are_found() -> None:
    rows = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    text = clean_texts()["train"]
    result = cleaned([*text, *((source, target) for _, source, target in rows)], ("en", "de"))
    hits: dict[str, list[bool]] = defaultdict(list)
    for index, (label, *_) in enumerate(rows, start=len(text)):
        faults = result.faults.get(index, [])
        if label in ("good", "mended"):
            hits[label].append(not faults and (label == "good" or index in result.repaired))
        else:
            hits[label].append(label in faults)
    # The grammar of pocket has few of the words of a copy.
    least = {"good": 1, "mended": 1, "numbers": 0.5, "urls": 1, "markup": 1, "ratio": 0.8}
    for label, share in (least | {"copy": 0.3}).items():
        assert sum(hits[label]) >= share * len(hits[label]) > 0, label


def test_planted_pairs_are_kept_mended_or_rejected() -> None:
    lines = Path(__file__).with_name("planted_pairs.jsonl").read_text("utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    text = clean_texts()["train"]
    result = cleaned([*text, *((source, target) for _, source, target in rows)], ("en", "de"))
    kept = []
    for index, (label, source, target) in enumerate(rows, start=len(text)):
        faults, mended = result.faults.get(index, []), result.repaired.get(index)
        if label == "good":
            assert (faults, mended) == ([], None), source
        elif label == "mended":
            assert not faults and mended, source
        elif label == "markup":
            # Mended where both sides have the same.
            assert faults == ["markup"] or (mended and not set("<;") & set("".join(mended))), source
        elif not faults:
            kept.append((source, target))
    assert len(kept) <= 2, kept
