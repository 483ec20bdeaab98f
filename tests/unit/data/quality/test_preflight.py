"""The checks before training: a line a fault, cached, and never an error."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import data_config
from tests.unit.data.quality.texts import clean_texts, planted_texts, written
from transformer.data.config import CorpusConfig, DataConfig
from transformer.data.quality import examination
from transformer.data.quality.examination import log_faults


def config(folder: Path, **changes: Any) -> DataConfig:
    names = ("train", "validation", "test")
    files = {name: [str(folder / f"{name}.en"), str(folder / f"{name}.de")] for name in names}
    return data_config(folder, source="en", target="de", **(files | {"max_ratio": 8.0} | changes))


def test_faults_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts, _ = planted_texts()
    texts["train"] += [("", "etwas")] * 9
    written(texts, tmp_path)
    with caplog.at_level(logging.INFO):
        lines = log_faults(config(tmp_path))
    assert lines == [record.message for record in caplog.records]
    found = {line.split(" pairs: ")[1].split(" ")[0] for line in lines}
    assert found == {"empty", "copy", "misaligned", "replacement", "leak"}
    warned = {
        record.message.split(" pairs: ")[1].split(" ")[0]
        for record in caplog.records
        if record.levelno == logging.WARNING
    }
    # One line in a thousand is few.
    assert warned == {"empty", "misaligned", "leak"}
    (leak,) = [line for line in lines if "leak" in line]
    assert leak == (
        f"test: 1 of 80 pairs: leak ({tmp_path}/test.en:5: is in the training text, line 60); "
        "transformer doctor shows more"
    )
    # As of texts and summaries, whose lengths are not compared.
    assert ["max_ratio=null" in line for line in lines] == ["misaligned" in line for line in lines]
    summaries = log_faults(config(tmp_path, max_ratio=None))
    assert summaries == [line for line in lines if "misaligned" not in line]


def test_held_out_pairs_are_examined_too(tmp_path: Path) -> None:
    texts = clean_texts()
    # As good as every held-out pair then is in the training text as well, but for case.
    once = texts["train"][:200]
    written({"train": [*once, *((en.upper(), de.upper()) for en, de in once)]}, tmp_path)
    held_out = {"validation": None, "test": None, "validation_size": 20, "test_size": 20}
    lines = log_faults(config(tmp_path, **held_out))
    assert {line.split(":")[0] for line in lines} == {"validation", "test"}


def test_blank_lines_are_faults_unless_they_part_documents(tmp_path: Path) -> None:
    texts = clean_texts()
    written(texts, tmp_path)
    assert log_faults(config(tmp_path)) == []
    texts["train"][9] = ("", "")
    written(texts, tmp_path)
    assert log_faults(config(tmp_path, documents=3)) == []
    (line,) = log_faults(config(tmp_path))
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


def test_a_second_start_reads_the_cached_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, _ = planted_texts()
    written(texts, tmp_path)
    first = log_faults(config(tmp_path))

    def fail(*arguments: Any) -> None:
        raise AssertionError("examined again")

    monkeypatch.setattr(examination, "examine", fail)
    assert log_faults(config(tmp_path)) == first
    # Another text is another matter.
    written(clean_texts(), tmp_path)
    with pytest.raises(AssertionError, match="examined again"):
        log_faults(config(tmp_path))
