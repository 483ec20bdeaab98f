"""The doctor and what cleans after it, as a user calls them."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs.runs import verb
from tests.unit.data.quality.texts import call_of, planted_texts, written
from transformer.__main__ import main


def test_planted_faults_are_found_left_out_and_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, where = planted_texts()
    written(texts, tmp_path / "in")
    code, stdout, stderr = verb("doctor", *call_of("in"), home=tmp_path)
    assert code == 2
    report = json.loads(stdout)
    *_, last = stderr.strip().split("\n")
    assert last.startswith("error: too many faults (train: misaligned;")
    assert "test: leak" in report["exceeded"]
    assert report["splits"]["train"]["pairs"] == 1000
    assert report["pairs_per_second"] > 0
    for check in ("empty", "mojibake", "language"):
        assert f"in/train.de:{where[check][1]}: {check}: " in stderr
    more = ["output=out", "splits=[train,test]", "filters.not_nfc=true"]
    code, stdout, stderr = verb("clean", *call_of("in"), *more, home=tmp_path)
    assert code == 0, stderr
    told = json.loads(stdout)["splits"]["train"]
    assert told["kept"] + told["rejected"] == 1000
    assert f"train: {told['kept']:,} of 1,000 pairs kept" in stderr
    (tmp_path / "in/validation.en").rename(tmp_path / "out/validation.en")
    (tmp_path / "in/validation.de").rename(tmp_path / "out/validation.de")
    # Here, to spare a third start.
    monkeypatch.chdir(tmp_path)
    code = main(["doctor", *call_of("out")])
    said = capsys.readouterr()
    assert (code, json.loads(said.out)["exceeded"]) == (0, []), said.err
