"""stress writes what the report reads; evaluate stress=true does the same after the scores."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.translators import PAIRS
from tests.unit.cli.test_load import RUN, written
from transformer.__main__ import main
from transformer.data.text_noise import DISTURBANCES

CALL = ["checkpoint=run.ckpt", "source=s", "reference=r", "decoding=greedy"]
CALL += ["decoding.max_length_ratio=0", "decoding.max_length_offset=9"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    data = {"source": "en", "target": "de"}
    written(tmp_path / "run.ckpt", {**RUN, "metrics": asdict(RAW), "data": data})
    for name, side in (("s", 0), ("r", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    return tmp_path


def test_all_disturbances_are_in_the_table_and_the_file(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stress", *CALL, "output=out"]) == 0
    table, said = capsys.readouterr()
    assert f"stress: 3/{len(DISTURBANCES)} {list(DISTURBANCES)[2]}\n" in said
    found = json.loads((home / "out" / "stress.json").read_text())
    assert [one["name"] for one in found["disturbances"]] == list(DISTURBANCES)
    assert found["sentences"] == len(PAIRS) and found["signature"] in table
    assert all(f"\n{name} " in table for name in DISTURBANCES)
    for one in found["disturbances"]:
        assert (one["score"] is None) == (one["loss"] is None)
        assert one["score"] is None or one["loss"] == pytest.approx(
            found["clean"] - one["score"], abs=0.02
        )
        assert set(one["failures"]) >= {"empty", "repetition", "numbers"}
    assert main(["evaluate", *CALL, "stress=true", "output=after"]) == 0
    captured = capsys.readouterr()
    assert "disturbance " in captured.err and json.loads(captured.out)[0]["score"] == found["clean"]
    assert json.loads((home / "after" / "stress.json").read_text()) == found


def test_some_disturbances_of_some_sentences_go_to_the_run(home: Path) -> None:
    assert main(["stress", *CALL, "disturbances=[typo_3,upper]", "sentences=2", "metric=ter"]) == 0
    found = json.loads((home / "stress.json").read_text())
    assert [one["name"] for one in found["disturbances"]] == ["typo_3", "upper"]
    assert (found["sentences"], found["metric"]) == (2, "TER")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("disturbances=[uper]", "disturbances has 'uper', which is none (did you mean upper?)"),
        ("metric=blue", "metric blue is unknown"),
        ("sentences=0", "sentences=0 must be at least 1"),
        ("output=s", "s: File exists"),
    ],
)
def test_wrong_keys_are_refused(
    given: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stress", *CALL, given]) == 2
    assert problem in capsys.readouterr().err
