"""Functions of the commands of evaluation: they print nothing, and return what they write."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.translators import PAIRS
from tests.unit.cli.test_load import RUN, written
from transformer import (
    AttentionConfig,
    CompareConfig,
    EvaluateConfig,
    StressConfig,
    attention,
    compare,
    evaluate,
    stress,
)
from transformer.checkpoint.checkpoint import Checkpoint
from transformer.common.errors import InputError

SEARCH = {"algorithm": "greedy", "beam_size": 1, "max_length_ratio": 0.0, "max_length_offset": 9}


@pytest.fixture
def text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Path]:
    """The keys of a text, in the folder of a checkpoint."""
    written(tmp_path / "run.ckpt", {**RUN, "metrics": asdict(RAW), "decoding": SEARCH})
    files = {name: tmp_path / name for name in ("source", "reference")}
    for side, file in enumerate(files.values()):
        file.write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    return {**files, "output": tmp_path / "out"}


def test_evaluate_shows_its_results_before_it_writes_them(
    text: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown, loaded = list[set[str]](), list[Checkpoint]()
    evaluated = evaluate(
        EvaluateConfig(str(tmp_path / "run.ckpt"), **text, stress=True),
        lambda _: shown.append({file.name for file in text["output"].iterdir()}),
        loaded=loaded.extend,
    )
    assert shown == [set()]
    assert [one.path for one in loaded] == [tmp_path / "run.ckpt"]
    files = {file.name: file.read_text() for file in text["output"].iterdir()}
    assert files.keys() == {"source.json", "source.hyp", "source.failures.json", "stress.json"}
    assert json.loads(files["source.json"]) == [one.to_json() for one in evaluated.scores]
    assert files["source.hyp"].split("\n")[:-1] == evaluated.hypotheses
    assert evaluated.stress is not None
    assert json.loads(files["stress.json"]) == evaluated.stress.to_json()
    assert capsys.readouterr() == ("", "")


def test_what_evaluate_cannot_measure_is_refused(text: dict[str, Path], tmp_path: Path) -> None:
    run = str(tmp_path / "run.ckpt")
    with pytest.raises(InputError, match="constrain=true needs terms=FILE"):
        EvaluateConfig(run, **text, constrain=True)
    with pytest.raises(InputError, match="alignment= is of the attention of one model"):
        evaluate(EvaluateConfig([run, run], **text, alignment=tmp_path / "links"))


def test_others_print_nothing_and_write_what_they_return(
    text: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, output = str(tmp_path / "run.ckpt"), text["output"]
    compared = compare(CompareConfig(runs=(run, text["reference"]), **text, bootstrap=20))
    assert compared.metrics[0].systems[1].score == pytest.approx(100)
    assert json.loads((output / "comparison.json").read_text())["sentences"] == len(PAIRS)
    # A file of both sides is read as the training text of the first run.
    both = tmp_path / "both.tsv"
    both.write_text("".join(f"{PAIRS[0][0]}\t{target}\n" for target in ("ein hund", "der hund")))
    settings = {**RUN, "metrics": asdict(RAW), "decoding": SEARCH}
    settings["data"] = {"corpus": "files", "repeated_sources": True}
    written(tmp_path / "repeated.ckpt", settings)
    repeated = str(tmp_path / "repeated.ckpt")
    scored = evaluate(EvaluateConfig(repeated, source=both)).scores[0]
    compared = compare(CompareConfig(runs=(repeated, repeated), source=both, bootstrap=20))
    assert compared.text.references == (("ein hund", "der hund"),)
    assert compared.metrics[0].signatures["score"] == scored.signature
    stressed = stress(StressConfig(checkpoint=run, **text, disturbances=("upper",), sentences=2))
    assert [one.name for one in stressed.disturbances] == ["upper"]
    assert json.loads((output / "stress.json").read_text()) == stressed.to_json()
    view, files = attention(
        AttentionConfig(checkpoint=run, text=PAIRS[0][0], sentences=0, output=output)
    )
    assert [file.name for file in files] == ["attention.html", "attention.json"]
    assert json.loads(files[1].read_text())["target"] == view.target
    assert capsys.readouterr() == ("", "")
