"""What is printed and saved can be read back, and a failure leaves what was there."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers.decoding.metrics import RAW
from transformer.evaluation.metrics import score
from transformer.quality.failures.monitor import Failures
from transformer.reports.scores import (
    failures_table,
    print_table,
    read_scores,
    save_report,
)

HYPOTHESES = ["Ein Hund schläft .", "", "zwei\u2028Katzen\r"]
SCORES = score(HYPOTHESES, ["Ein Hund schläft .", "Nein .", "zwei Katzen"], config=RAW)


def test_saved_files_say_what_was_scored(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    save_report(folder, "test", SCORES, HYPOTHESES)
    assert json.loads((folder / "test.json").read_bytes()) == [s.to_json() for s in SCORES]
    lines = (folder / "test.hyp").read_bytes().decode("utf-8").split("\n")
    assert lines == [*HYPOTHESES, ""]
    assert sorted(os.listdir(folder)) == ["test.hyp", "test.json"]
    save_report(folder, "valid", SCORES[:1], None)
    (folder / "config.json").write_text("{}")
    # Of the model before the run went on.
    (folder / "outdated-test-2026-05-01_12-00-00.json").write_bytes(
        (folder / "test.json").read_bytes()
    )
    assert read_scores(folder) == {
        "test": [score.to_json() for score in SCORES],
        "valid": [SCORES[0].to_json()],
    }


def test_flags_are_shown_and_saved_beside_the_hypotheses(tmp_path: Path) -> None:
    failures = Failures(
        ("empty", "copy", "numbers", "low_confidence"),
        [("copy",), ("empty", "low_confidence"), ("copy",)],
        [(), ("copy",), ()],
        3,
    )
    save_report(tmp_path, "test", SCORES, HYPOTHESES, failures)
    saved = json.loads((tmp_path / "failures.json").read_text())
    assert saved["sentences"] == 3
    assert saved["flags"]["copy"] == {"hypothesis": 2, "reference": 1, "lines": [0, 2]}
    rows = [line.split() for line in str(failures_table(failures)).split("\n")[2:]]
    assert rows == [
        ["empty", "1", "0", "2"],
        ["copy", "2", "1", "1", "3"],
        ["low_confidence", "1", "-", "2"],
    ]
    none = Failures(("empty",), [()] * 3, [()] * 3, 3)
    assert str(failures_table(none)) == "failures: none of 3 outputs has a flag"


def test_the_table_names_metric_score_and_signature(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # however narrow the screen, a signature can be copied
    print_table("news[de].en", SCORES)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("news[de].en")
    lines = captured.err.split("\n")
    for expected in SCORES:
        [line] = [line for line in lines if line.startswith(expected.name)]
        assert f"{expected.value:.2f}" in line
        assert expected.signature in line
