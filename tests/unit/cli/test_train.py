"""What the verb asks of a run before anything is trained."""

import logging
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from transformer.cli import train
from transformer.cli.compose import compose_config
from transformer.errors import InputError


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be trained."""
    runs: list[Any] = []
    monkeypatch.setattr(train, "_run", lambda *run: runs.append(run))
    monkeypatch.setattr(train, "_log_to", lambda file, rank: logging.getLogger(__name__))
    return runs


def swept() -> DictConfig:
    config: Any = compose_config("train", ["objective=val/loss"])
    config.checkpoint = None
    return config


def test_the_other_ranks_of_a_trial_do_not_ask_for_a_sweep(
    trained: list[Any], tmp_path: Path
) -> None:
    """Rank 0 alone has the objective."""
    train.train_as_rank(1, swept(), tmp_path)
    assert len(trained) == 1
    with pytest.raises(InputError, match="objective=val/loss is for a sweep; add --multirun"):
        train.train_as_rank(0, swept(), tmp_path)
    assert len(trained) == 1
