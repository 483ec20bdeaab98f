"""What evaluate reads and writes: files of any name, and no score is lost."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.translators import PAIRS
from tests.unit.cli.test_load import RUN, written
from transformer.__main__ import main
from transformer.decoding.translator import Translator
from transformer.reports import scores

CALL = ["checkpoint=2013", "source=2014", "reference=2015", "decoding=greedy"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint and a text, with names that are numbers to Hydra."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "2013", {**RUN, "metrics": asdict(RAW)})
    for name, side in (("2014", 0), ("2015", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    return tmp_path


def test_names_may_be_numbers(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "2016").write_text("hund\n\n\n\n")
    assert main(["evaluate", *CALL, "terms=2016", "output=2024"]) == 0
    assert json.loads((home / "2024" / "2014.json").read_text()) == json.loads(
        capsys.readouterr().out
    )
    assert main(["score", "checkpoint=2013", "source=2014", "target=2015"]) == 0
    assert capsys.readouterr().out.count("\n") == len(PAIRS)


def test_the_checkpoint_and_the_search_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    beam = ["decoding=beam", "decoding.beam_size=3", "decoding.length_penalty=0.5"]
    assert main(["evaluate", *CALL[:3], *beam]) == 0
    says = "2013, decoding.beam_size=3 decoding.length_penalty=0.5"
    assert capsys.readouterr().err.split("\n")[0] == says
    assert main(["evaluate", *CALL]) == 0
    assert "2013, decoding.algorithm=greedy\n" in capsys.readouterr().err


def test_where_nothing_can_be_written_nothing_is_translated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Translator, "translate", None)
    assert main(["evaluate", *CALL, "output=2014"]) == 2
    assert "error: 2014: File exists; check its name" in capsys.readouterr().err


def test_scores_are_shown_even_if_they_cannot_be_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "scores")

    monkeypatch.setattr(scores, "write_text_whole", full)
    assert main(["evaluate", *CALL, "output=scores"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0]["name"] == "BLEU"
    assert "error: scores: No space left on device" in captured.err
