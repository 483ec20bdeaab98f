"""A run with all that is drawn for it goes on, after a stop, as if it had never stopped."""

import signal
from pathlib import Path

import pytest

from tests.helpers.runs.faults import SignalAt
from tests.helpers.runs.outcomes import assert_equals_whole, outcome
from tests.helpers.runs.processes import finish, tiny_config

TOKENS = ["model.source_token_dropout=0.1", "model.target_token_dropout=0.1"]


@pytest.mark.thorough
def test_a_run_that_goes_on_draws_alike(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, "loss=r_drop", *TOKENS, "trainer.max_steps=14")
    finish(config, tmp_path / "whole")
    finish(config, tmp_path / "run", SignalAt("on_train_batch_end", 7, signal.SIGTERM), 143)
    finish(config, tmp_path / "run")
    assert_equals_whole(tmp_path, tmp_path / "run")
    measured = [row["train/consistency"] for row in outcome(tmp_path / "run")["rows"]]
    assert [float(value) > 0 for value in measured if value] == [True, True]
