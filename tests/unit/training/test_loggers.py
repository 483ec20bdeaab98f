"""Where metrics go, and what a resumed run finds there."""

import csv
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning.loggers import TensorBoardLogger

from transformer.training.config import LoggerConfig
from transformer.training.loggers import ContinuedCSVLogger, build_loggers


def log(folder: Path, *rows: tuple[int, dict[str, float]]) -> None:
    """One run, or one part of it."""
    logger = ContinuedCSVLogger(folder)
    for step, metrics in rows:
        logger.log_metrics(metrics, step)
        logger.save()
    logger.finalize("success")


def rows(folder: Path) -> list[dict[str, Any]]:
    with open(folder / "metrics.csv", newline="") as file:
        return [
            {key: float(value) for key, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


@pytest.mark.filterwarnings("ignore:Experiment logs directory")
@pytest.mark.parametrize("key", ["loss", "another", "a"])
def test_a_resumed_run_keeps_the_rows_before_it(tmp_path: Path, key: str) -> None:
    log(tmp_path, (1, {"loss": 3.5}), (2, {"loss": 2.5, "val": 9.0}))
    log(tmp_path, (3, {key: 1.5}))  # with the same columns or a new one
    log(tmp_path, (4, {"loss": 0.5}))
    assert rows(tmp_path) == [
        {"step": 1, "loss": 3.5},
        {"step": 2, "loss": 2.5, "val": 9.0},
        {"step": 3, key: 1.5},
        {"step": 4, "loss": 0.5},
    ]


@pytest.mark.filterwarnings("ignore:Experiment logs directory")
def test_a_resumed_run_that_logs_nothing_loses_nothing(tmp_path: Path) -> None:
    log(tmp_path, (1, {"loss": 3.5}))
    log(tmp_path)
    assert rows(tmp_path) == [{"step": 1, "loss": 3.5}]


@pytest.mark.parametrize("csv_wanted", [True, False])
@pytest.mark.parametrize("tensorboard", [True, False])
def test_the_loggers_that_are_asked_for(
    tmp_path: Path, csv_wanted: bool, tensorboard: bool
) -> None:
    loggers = build_loggers(LoggerConfig(csv=csv_wanted, tensorboard=tensorboard), tmp_path)
    kinds = [ContinuedCSVLogger] * csv_wanted + [TensorBoardLogger] * tensorboard
    assert [type(logger) for logger in loggers] == kinds
    expected = [str(tmp_path)] * csv_wanted + [str(tmp_path / "tensorboard")] * tensorboard
    assert [str(logger.log_dir).rstrip("/") for logger in loggers] == expected
