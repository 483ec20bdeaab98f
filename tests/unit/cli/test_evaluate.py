"""What evaluate and stress read and write: files of any name, and no score is lost."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.translators import PAIRS
from tests.unit.cli.test_load import RUN, written
from transformer.__main__ import main
from transformer.common.errors import InputError
from transformer.data.corpora.evaluation_text import no_split
from transformer.data.text_noise import DISTURBANCES
from transformer.decoding.translator import Translator
from transformer.reports import scores
from transformer.settings.evaluation import CompareConfig
from transformer.settings.metrics import MetricsConfig

CALL = ["checkpoint=2013", "source=2014", "reference=2015", "decoding=greedy"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint and a text, with names that are numbers to Hydra."""
    monkeypatch.chdir(tmp_path)
    data = {"source": "en", "target": "de"}
    written(tmp_path / "2013", {**RUN, "metrics": asdict(RAW), "data": data})
    for name, side in (("2014", 0), ("2015", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    return tmp_path


def test_names_may_be_numbers(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "2016").write_text("hund\n\n\n\n")
    assert main(["evaluate", *CALL, "terms=2016", "output=2024"]) == 0
    output, errors = capsys.readouterr()
    assert json.loads((home / "2024" / "2014.json").read_text()) == json.loads(output)
    assert "2013, decoding.algorithm=greedy\n" in errors
    assert main(["score", "checkpoint=2013", "source=2014", "target=2015"]) == 0
    assert capsys.readouterr().out.count("\n") == len(PAIRS)
    beam = ["decoding=beam", "decoding.beam_size=3", "decoding.length_penalty=0.5"]
    assert main(["evaluate", *CALL[:3], *beam]) == 0
    line = "2013, decoding.beam_size=3 decoding.length_penalty=0.5"
    assert capsys.readouterr().err.split("\n")[0] == line


def test_scores_are_shown_even_if_they_cannot_be_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "scores")

    monkeypatch.setattr(scores, "write_text_whole", full)
    assert main(["evaluate", *CALL, "output=scores"]) == 2
    output, errors = capsys.readouterr()
    assert json.loads(output)[0]["name"] == "BLEU"
    assert "error: scores: No space left on device" in errors
    # Where nothing can be written, nothing is translated.
    monkeypatch.setattr(Translator, "translate", None)
    assert main(["evaluate", *CALL, "output=2014"]) == 2
    assert "error: 2014: File exists; check its name" in capsys.readouterr().err


def test_a_metric_of_ones_own_is_beside_those_by_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "own_counts.py").write_text("def ones(hypotheses, references):\n    return 1.0\n")
    monkeypatch.syspath_prepend(home)
    own = "metrics=own_counts:ones"
    assert main(["evaluate", *CALL, own, "scores=[ter,bleu]"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [found["name"] for found in shown] == ["TER", "BLEU", "custom"]
    config = CompareConfig(["a", "b"], custom="own_counts:ones", scores=("ter",))
    assert config.names(MetricsConfig(custom=config.custom)) == ["ter", "custom"]
    for verb, key in (("evaluate", "scores=[meteor]"), ("stress", "metric=meteor")):
        for extra in ([], [own]):
            assert main([verb, *CALL, *extra, "metrics=meteor"]) == 2
            error = capsys.readouterr().err
            assert "metrics=meteor is not MODULE:FUNCTION" in error and key in error


def test_a_metric_of_ones_own_is_that_of_a_stress_test(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "own_counts.py").write_text("def ones(hypotheses, references):\n    return 1.0\n")
    monkeypatch.syspath_prepend(home)
    arguments = ["metrics=own_counts:ones", "disturbances=[lower]", "output=out"]
    assert main([*STRESS, *arguments]) == 0
    measured = json.loads((home / "out" / "stress.json").read_text())
    assert (measured["metric"], measured["clean"]) == ("custom", 1.0)


def test_a_split_that_is_nearly_named_is_suggested() -> None:
    with pytest.raises(InputError, match=r"no split=valid \(did you mean validation\?\); choose "):
        raise no_split("valid", ["validation", "test"])


STRESS = ["stress", *CALL, "decoding.max_length_ratio=0", "decoding.max_length_offset=9"]


@pytest.mark.thorough
def test_all_disturbances_are_in_the_table_and_the_file(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STRESS, "output=out"]) == 0
    table, log = capsys.readouterr()
    assert f"stress: 3/{len(DISTURBANCES)} {list(DISTURBANCES)[2]}\n" in log
    result = json.loads((home / "out" / "stress.json").read_text())
    assert [row["name"] for row in result["disturbances"]] == list(DISTURBANCES)
    assert result["sentences"] == len(PAIRS) and result["signature"] in table
    for row in result["disturbances"]:
        assert f"\n{row['name']} " in table
        assert (row["score"] is None) == (row["loss"] is None)
        if row["score"] is not None:
            assert row["loss"] == pytest.approx(result["clean"] - row["score"], abs=0.02)
        assert set(row["failures"]) >= {"empty", "repetition", "numbers"}
    assert main(["evaluate", *STRESS[1:], "stress=true", "output=after"]) == 0
    assert json.loads((home / "after" / "stress.json").read_text()) == result
    # Some disturbances of some sentences go to the run.
    few = ["disturbances=[typo_3,upper]", "sentences=2", "metric=ter"]
    assert main([*STRESS, *few]) == 0
    result = json.loads((home / "stress.json").read_text())
    assert [row["name"] for row in result["disturbances"]] == ["typo_3", "upper"]
    assert (result["sentences"], result["metric"]) == (2, "TER")
