"""What a call of compare means."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers.decoding.translators import PAIRS
from tests.helpers.runs.tuning_runs import write_run
from transformer.__main__ import main
from transformer.commands.compare import about_run


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text, and two files of hypotheses."""
    monkeypatch.chdir(tmp_path)
    references = [reference for _, reference in PAIRS]
    files = {
        "src": [source for source, _ in PAIRS],
        "ref": references,
        "good": references,
        "bad": [line.split()[0] for line in references],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


TEXT = ("source=src", "reference=ref", "bootstrap=50", "randomization=50")


def test_files_of_hypotheses_are_compared_in_order(
    texts: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    # A path may look like a key.
    (texts / "lr=0.1,[x]").write_bytes((texts / "good").read_bytes())
    keys = [*TEXT, "scores=[ter,bleu]"]
    assert main(["compare", "bad", "./lr=0.1,[x]", "./bad", *keys, "output=out"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [system["name"] for system in result["systems"]] == ["bad", "lr=0.1,[x]", "bad"]
    assert (result["text"], result["sentences"]) == ("src", len(PAIRS))
    assert [metric["name"] for metric in result["metrics"]] == ["TER", "BLEU"]
    _, good, bad = result["metrics"][1]["systems"]
    assert good["score"] == pytest.approx(100)
    assert bad["difference"] == 0.0
    assert result["by_frequency"] is None
    assert "no table of words by frequency" in caplog.text
    assert json.loads((texts / "out" / "comparison.json").read_text()) == result
    assert main(["compare", "runs=[bad,good,bad]", *keys]) == 0
    by_key = json.loads(capsys.readouterr().out)
    assert by_key["metrics"][0]["systems"] == result["metrics"][0]["systems"]


def test_words_are_counted_even_from_a_pipe(
    texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.write(writing, (texts / "ref").read_bytes())
    os.close(writing)
    keys = [*TEXT, f"training=/dev/fd/{reading}", "frequencies=[4]"]
    assert main(["compare", "bad", "good", *keys]) == 0
    os.close(reading)
    buckets = json.loads(capsys.readouterr().out)["by_frequency"]["buckets"]
    # Full stops stand four times in the references; each other word less often.
    words = sum(len(reference.split()) for _, reference in PAIRS)
    counts = {bucket["label"]: bucket["words"] for bucket in buckets}
    assert counts == {"0-3": words - 4, "4+": 4}
    assert [match["f1"] for match in buckets[1]["matches"]] == [0.0, 100.0]


def test_a_moving_average_of_weights_is_named(tmp_path: Path) -> None:
    file = {"checkpoint": str(tmp_path / "run" / "checkpoints" / "best.ckpt")}
    assert about_run(write_run(tmp_path)) == file
    assert about_run(write_run(tmp_path, ema=True)) == file | {"weights": "ema"}
