"""Faults of every kind are found, and named with their lines; clean text is quiet."""

import logging
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import data_config
from tests.unit.quality.texts import clean_texts, examination_config, planted_texts, written
from transformer.quality.check import Finding
from transformer.quality.examination import Examination, describe_lengths, examine, log_faults
from transformer.settings.corpora import CHECKS, Thresholds
from transformer.settings.data import CorpusConfig, DataConfig

ALLOWED = vars(Thresholds()) | {"leak_target": 0.25}


def exceeded(examination: Examination) -> list[str]:
    return [f"{f.split}: {f.check}" for f in examination.findings if f.fraction > ALLOWED[f.check]]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Examination:
    texts, _ = planted_texts()
    splits = written(texts, tmp_path_factory.mktemp("planted"))
    return examine(splits, examination_config())


def finding(examination: Examination, split: str, check: str) -> Finding:
    (found,) = [f for f in examination.findings if (f.split, f.check) == (split, check)]
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_a_planted_fault_is_found_with_its_line(planted: Examination, check: str) -> None:
    split, line = planted_texts()[1][check]
    found = finding(planted, split, check)
    assert found.count > 0
    lines = [example.line for example in found.examples]
    # The edge of a stretch shows in lengths only, which are much alike from line to line.
    near = 5 if check == "misaligned" else 0
    assert min(abs(line - one) for one in lines) <= near, found
    assert all(example.message and example.message.isprintable() for example in found.examples)
    if check in ("empty", "noise", "ratio", "copy", "numbers", "urls", "too_long", "not_nfc"):
        assert found.count == 1
        assert finding(planted, "validation", check).count == 0


def test_leaks_a_shift_and_shuffled_text_are_found(planted: Examination, tmp_path: Path) -> None:
    counts = {name: finding(planted, "test", name).count for name in CHECKS if "leak" in name}
    assert counts == {"leak": 1, "leak_source": 2, "leak_target": 2}
    found = finding(planted, "train", "misaligned")
    (example,) = found.examples
    assert "the source fits the target 1 line below" in example.message
    last = int(example.message.removeprefix("to line ").split(":")[0])
    assert abs(last - 850) <= 5
    assert found.count == last - example.line + 1
    texts = clean_texts()
    sources, targets = zip(*texts["train"], strict=True)
    shuffled = random.Random(1).sample(targets, len(targets))
    texts["train"] = list(zip(sources, shuffled, strict=True))
    examination = examine(written(texts, tmp_path), examination_config(("misaligned",)))
    assert finding(examination, "train", "misaligned").fraction == 1


def test_only_planted_text_exceeds_thresholds(tmp_path: Path, planted: Examination) -> None:
    assert {"train: misaligned", "test: leak"} <= {*exceeded(planted)}
    assert "train: several_targets" not in exceeded(planted)
    examination = examine(written(clean_texts(), tmp_path), examination_config())
    assert exceeded(examination) == []
    assert examination.pairs == {"train": 1000, "validation": 80, "test": 80}
    lengths = describe_lengths(Counter([1, 2, 2, 3, 3, 3, 4, 4, 4, 100]))
    assert lengths == {"mean": 12.6, "p1": 1, "p50": 3, "p99": 100, "max": 100}


def test_languages_are_detected_and_swapped_sides_found(tmp_path: Path) -> None:
    texts, _ = planted_texts()
    config = examination_config(("language",), languages=("source", "target"))
    found = finding(examine(written(texts, tmp_path), config), "train", "language")
    # The first is in another script, too.
    assert [example.line for example in found.examples] == [15, 19]
    assert found.examples[1].message.startswith("fr for de: ")
    texts = {name: [(b, a) for a, b in pairs[:300]] for name, pairs in clean_texts().items()}
    swapped = examine(written(texts, tmp_path / "swapped"), examination_config(("language",)))
    assert finding(swapped, "train", "language").fraction > 0.8


def test_checks_without_their_packages_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ftfy", None)
    monkeypatch.setitem(sys.modules, "py3langid", None)
    texts = written({name: pairs[:50] for name, pairs in clean_texts().items()}, tmp_path)
    examination = examine(texts, examination_config(("mojibake", "language", "empty")))
    assert set(examination.skipped) == {"mojibake", "language"}
    assert {finding.check for finding in examination.findings} == {"empty"}


def preflight_config(folder: Path, **changes: Any) -> DataConfig:
    names = ("train", "validation", "test")
    files = {name: [str(folder / f"{name}.en"), str(folder / f"{name}.de")] for name in names}
    return data_config(folder, source="en", target="de", **(files | {"max_ratio": 8.0} | changes))


def test_faults_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts, _ = planted_texts()
    texts["train"] += [("", "etwas")] * 9
    written(texts, tmp_path)
    with caplog.at_level(logging.INFO):
        lines = log_faults(preflight_config(tmp_path))
    assert lines == [record.message for record in caplog.records]
    found = {line.split(" pairs: ")[1].split(" ")[0] for line in lines}
    assert found == {"empty", "copy", "misaligned", "replacement", "leak"}
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    # Empty, misaligned, leak: the other two are one line in a thousand.
    assert len(warnings) == 3
    # As of texts and summaries, whose lengths are not compared.
    summaries = log_faults(preflight_config(tmp_path, max_ratio=None))
    assert summaries == [line for line in lines if "misaligned" not in line]


def test_blank_lines_are_faults_unless_they_part_documents(tmp_path: Path) -> None:
    texts = clean_texts()
    written(texts, tmp_path)
    assert log_faults(preflight_config(tmp_path)) == []
    texts["train"][9] = ("", "")
    written(texts, tmp_path)
    assert log_faults(preflight_config(tmp_path, documents=3)) == []
    (line,) = log_faults(preflight_config(tmp_path))
    assert line.startswith("train: 1 of 1,000 pairs: empty")


def test_leaks_are_looked_for_in_all_corpora(tmp_path: Path) -> None:
    train = clean_texts()["train"]
    written({"train": train[:400], "test": train[400:500]}, tmp_path / "one")
    # Of the test text of the first, some are trained on in the other direction.
    other = [(german, english) for english, german in train[490:800]]
    written({"train": other, "test": train[800:900]}, tmp_path / "two")

    def files(folder: str, name: str) -> list[str]:
        return [str(tmp_path / folder / f"{name}.{side}") for side in ("en", "de")]

    entries = {
        folder: CorpusConfig(train=files(folder, "train"), test=files(folder, "test"))
        for folder in ("one", "two")
    }
    alone = {"train": None, "validation": None, "validation_size": 0}
    both = data_config(tmp_path, source="en", target="de", corpora=entries, **alone)
    (line,) = log_faults(both)
    assert line == (
        f"test_one: 10 of 100 pairs: leak ({tmp_path}/one/test.en:91: is in the training text "
        f"of two, line 1; {tmp_path}/one/test.en:92: is in the training text of two, line 2); "
        "transformer doctor shows more"
    )
