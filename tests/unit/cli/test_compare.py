"""What a call of compare means."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers.decoding.translators import PAIRS
from tests.helpers.runs.tuning_runs import write_run
from transformer.__main__ import main
from transformer.commands.compare import about_run

SOURCES = [source for source, _ in PAIRS]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of hypotheses, the text, and a file that is not as long."""
    monkeypatch.chdir(tmp_path)
    references = [reference for _, reference in PAIRS]
    files = {
        **{"src": SOURCES, "ref": references, "good": references},
        **{"bad": [line.split()[0] for line in references], "short": references[:2]},
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


TEXT = ("source=src", "reference=ref", "bootstrap=50", "randomization=50")


def test_files_of_hypotheses_are_compared_in_order(
    texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "bad", "good", "./bad", *TEXT, "scores=[ter,bleu]", "output=told"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["systems"]] == ["bad", "good", "bad"]
    assert (told["text"], told["sentences"]) == ("src", len(PAIRS))
    assert [one["name"] for one in told["metrics"]] == ["TER", "BLEU"]
    _, good, bad = told["metrics"][1]["systems"]
    assert good["score"] == pytest.approx(100)
    assert bad["difference"] == 0.0
    assert told["by_frequency"] is None
    assert json.loads((texts / "told" / "comparison.json").read_text()) == told


def test_runs_is_the_same_as_paths(
    texts: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["compare", "bad", "good", *TEXT]) == 0
    by_path = capsys.readouterr()
    assert main(["compare", "runs=[bad,good]", *TEXT]) == 0
    assert capsys.readouterr().out == by_path.out
    assert "no table of words by frequency" in caplog.text
    # A path may look like a key.
    (texts / "lr=0.1,[x]").write_bytes((texts / "good").read_bytes())
    assert main(["compare", "bad", "./lr=0.1,[x]", *TEXT]) == 0
    assert json.loads(capsys.readouterr().out)["systems"][1]["name"] == "lr=0.1,[x]"


def test_words_are_counted_even_from_a_pipe(
    texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.write(writing, (texts / "ref").read_bytes())
    os.close(writing)
    given = [*TEXT, f"training=/dev/fd/{reading}", "frequencies=[4]"]
    assert main(["compare", "bad", "good", *given]) == 0
    os.close(reading)
    found = json.loads(capsys.readouterr().out)["by_frequency"]["buckets"]
    # Full stops stand four times in the references; each other word less often.
    words = sum(len(reference.split()) for _, reference in PAIRS)
    assert [(one["label"], one["words"]) for one in found] == [("0-3", words - 4), ("4+", 4)]
    assert [match["f1"] for match in found[1]["matches"]] == [0.0, 100.0]


def test_a_comparison_that_cannot_be_saved_is_shown(
    texts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "o")

    monkeypatch.setattr("transformer.reports.comparison.write_text_whole", full)
    assert main(["compare", "bad", "good", *TEXT, "output=o"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["text"] == "src"
    assert "error: o: No space left on device" in said.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bad", "good", *TEXT, "output=src"], "src: File exists"),
        (["bad", "good", *TEXT, "tokenize=latin"], "tokenize=latin cannot be used (it is unknown)"),
        ([], "compare takes two systems or more: compare RUN_A RUN_B"),
        (["bad"], "compare takes two systems or more"),
        (["bad", "good"], "give source=FILE and reference=FILE"),
        (["bad", "good", "source=src"], "source=FILE and reference=FILE go together"),
        (["bad", "short", *TEXT], "short has 2 lines for 4 sentences"),
        (["bad", "good", *TEXT, "training=gone"], "gone: no such file"),
        (["bad", "good", *TEXT, "seed=0"], "seed=0 must be at least 1"),
        (["bad", "good", *TEXT, "moved_by=meteor"], "metric meteor is unknown"),
    ],
)
def test_a_wrong_call_is_one_line(
    texts: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["compare", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert len(said.err.strip().split("\n")) == 1


@pytest.mark.parametrize("ema", [True, False])
def test_a_moving_average_of_weights_is_named(ema: bool, tmp_path: Path) -> None:
    run = write_run(tmp_path, ema=ema)
    file = {"checkpoint": str(run / "checkpoints" / "best.ckpt")}
    assert about_run(run) == file | ({"weights": "ema"} if ema else {})
