"""The profile of an update counts every operation once, in the row that it belongs to."""

import json
from pathlib import Path

import pytest

from benchmarks.training.profiling import (
    KINDS,
    SETTINGS,
    Profiled,
    table,
)
from tests.helpers.runs.runs import SMALL, composed, corpus_overrides
from transformer.runs.train import fit

pytestmark = pytest.mark.thorough


class Ended(Exception):
    """In place of the end of the process."""


def test_a_run_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise Ended

    monkeypatch.setattr("benchmarks.training.profiling.os._exit", end)
    said = tmp_path / "said"
    config = composed([*corpus_overrides(tmp_path), *SMALL, "trainer.max_steps=9"], tmp_path / "c")
    with said.open("w") as answers, pytest.raises(Ended):
        fit(config, tmp_path / "run", [Profiled(first=1, updates=2, answers=answers)])
    told = json.loads(said.read_text())
    assert told["tokens_per_second"] > 0
    without = {kind for kind, spent in told["milliseconds"].items() if not spent}
    assert without <= {"random numbers, dropout"}  # the small run drops nothing
    assert told["operations"] > 1e8
    lines = table("tiny", dict.fromkeys(SETTINGS, told))
    assert lines[0] == "| tiny | plain, ms | share | now, ms | share |"
    assert len(lines) == 2 + len(KINDS) + 2 + 4
