"""Where metrics go, and what a resumed run finds there."""

import csv
import errno
import os
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.helpers.training.fakes import fake_module, fake_trainer
from transformer.settings.training import LoggerConfig
from transformer.training.callbacks import loggers as loggers_module
from transformer.training.callbacks.loggers import (
    ContinuedCSVLogger,
    ContinuedLogs,
    ContinuedRecords,
    ContinuedTensorBoard,
    RemoteLogger,
    build_loggers,
)


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


def test_a_resumed_run_keeps_the_rows_before_it(tmp_path: Path) -> None:
    log(tmp_path, (1, {"loss": 3.5}), (2, {"loss": 2.5, "val": 9.0}))
    log(tmp_path, (3, {"another": 1.5}))
    log(tmp_path)  # it logs nothing, and loses nothing
    log(tmp_path, (4, {"loss": 0.5}))
    assert rows(tmp_path) == [
        {"step": 1, "loss": 3.5},
        {"step": 2, "loss": 2.5, "val": 9.0},
        {"step": 3, "another": 1.5},
        {"step": 4, "loss": 0.5},
    ]
    logger = ContinuedCSVLogger(tmp_path)
    files = []
    for step, name in ((5, "loss"), (6, "loss"), (7, "bleu")):
        logger.log_metrics({name: 1.0}, step)
        logger.save()
        files.append((tmp_path / "metrics.csv").stat().st_ino)
    # A new column, and nothing else, makes a new file.
    assert files[0] == files[1] != files[2]
    assert len(rows(tmp_path)) == 7


def test_half_rows_and_damaged_ones_are_dropped(tmp_path: Path) -> None:
    log(tmp_path, (1, {"loss": 3.5}), (2, {"loss": 2.5}))
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("0.12")
    log(tmp_path, (3, {"loss": 1.5}))
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]
    assert rows(tmp_path)[2]["loss"] == 1.5
    # Damaged rows tell nothing.
    damaged = "1.5,abc\n2.5\n3.5,3,4\n,4\nabc,5\n\xff,6\n"
    (tmp_path / "metrics.csv").write_text(f"loss,step\n9.5,0\n{damaged}", "latin-1")
    logger = ContinuedCSVLogger(tmp_path)
    assert logger.newest() == {"loss": (9.5, 1), "step": (4.0, 5)}
    logger.log_metrics({"val": 1.0}, 7)
    logger.save()
    assert logger.newest()["val"] == (1.0, 8)


def test_where_the_disk_is_full_rows_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger = ContinuedCSVLogger(tmp_path)
    for step, metrics in ((1, {"loss": 3.5}), (2, {"loss": 2.5}), (3, {"val": 1.0})):
        logger.log_metrics(metrics, step)
        with monkeypatch.context() as full:
            no_space = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            full.setattr(os, "fsync", no_space)
            full.setattr(loggers_module, "open_unlinked", no_space)
            logger.save()
        assert "new rows are written later" in caplog.text
        before = rows(tmp_path) if (tmp_path / "metrics.csv").exists() else []
        assert len(before) == step - 1
        logger.save()
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]


def test_the_epoch_is_how_many_the_updates_make(tmp_path: Path) -> None:
    logger = build_loggers(LoggerConfig(csv=True, tensorboard=False), tmp_path, {})[0]
    trainer = fake_trainer(loggers=[logger])
    ContinuedLogs().on_train_start(trainer, fake_module())
    # Fine-tuning validates before the first update.
    logger.log_metrics({"loss": 4.5}, 0)
    trainer.global_step = 34
    # Lightning counts updates from 0, and epochs never.
    logger.log_metrics({"loss": 3.5, "epoch": 0}, 33)
    logger.finalize("success")
    assert rows(tmp_path) == [
        {"step": 0, "loss": 4.5, "epoch": 0.0},
        {"step": 33, "loss": 3.5, "epoch": 3.4},
    ]
    unknown = ContinuedCSVLogger(tmp_path)
    unknown.epochs = lambda done: None
    assert unknown.with_epoch({"loss": 3.5, "epoch": 0}, 1) == {"loss": 3.5}


def test_a_run_that_goes_on_cuts_every_logger(tmp_path: Path) -> None:
    loggers = build_loggers(LoggerConfig(), tmp_path, {})
    assert [type(logger) for logger in loggers] == [ContinuedCSVLogger, ContinuedTensorBoard]
    assert build_loggers(LoggerConfig(csv=False, tensorboard=False), tmp_path, {}) == []
    checkpoint: dict[str, Any] = {"global_step": 2}
    for step in (1, 2, 3):
        for logger in loggers:
            logger.log_metrics({"loss": float(step)}, step)
        if step == 2:
            callback = ContinuedLogs()
            callback.on_save_checkpoint(fake_trainer(loggers=loggers), fake_module(), checkpoint)
    for logger in loggers:
        logger.save()
        logger.finalize("success")
    time.sleep(1.1)  # the names of TensorBoard's files are seconds
    loggers = build_loggers(LoggerConfig(), tmp_path, {})
    trainer = fake_trainer(loggers=loggers, global_step=2)
    callback = ContinuedLogs()
    callback.on_load_checkpoint(trainer, fake_module(), checkpoint)
    callback.on_train_start(trainer, fake_module())
    for logger in loggers:
        logger.log_metrics({"loss": 13.0}, 3)
        logger.finalize("success")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    points = [(1, 1.0), (2, 2.0), (3, 13.0)]
    assert [(event.step, event.value) for event in events.Scalars("loss")] == points
    assert [(row["step"], row["loss"]) for row in rows(tmp_path)] == points


def test_a_record_goes_on_with_what_it_does_not_have(tmp_path: Path) -> None:
    service = Mock(version="abc")
    asked: list[str | None] = []

    def build(found: str | None) -> Mock:
        asked.append(found)
        return service

    logger, saved = RemoteLogger("wandb", build, {"seed": 1}), {"global_step": 2}
    trainer = fake_trainer(loggers=[logger])
    ContinuedRecords().on_train_start(trainer, fake_module())
    ContinuedRecords().on_save_checkpoint(trainer, fake_module(), saved)
    assert saved["records"] == {"wandb": "abc"}
    service.log_hyperparams.assert_called_once_with({"seed": 1})

    csv_logger, again = ContinuedCSVLogger(tmp_path), RemoteLogger("wandb", build, {"seed": 2})
    for step in (0, 1, 2, 3):
        csv_logger.log_metrics({"loss": 1.0}, step)
    resumed = fake_trainer(loggers=[csv_logger, again])
    ContinuedRecords().on_load_checkpoint(resumed, fake_module(), saved)
    ContinuedRecords().on_train_start(resumed, fake_module())
    for step in (2, 3, 4):
        again.log_metrics({"loss": 1.0}, step)
    again.log_metrics({"val/loss": 2.0}, 3)
    assert asked == [None, "abc"]
    service.log_hyperparams.assert_called_once()
    assert [call.args for call in service.log_metrics.call_args_list] == [
        ({"loss": 1.0}, 4),
        ({"val/loss": 2.0}, 3),
    ]


def test_no_error_of_a_service_reaches_the_training(caplog: pytest.LogCaptureFixture) -> None:
    service = Mock(version="abc")
    service.log_metrics.side_effect = ConnectionError("no\nroute")
    logger = RemoteLogger("wandb", lambda _: service, {})
    for step in range(3):
        logger.log_metrics({"loss": 1.0}, step)
    logger.finalize("success")
    assert [record.getMessage() for record in caplog.records] == ["logger=wandb stops: no route"]
    service.log_metrics.assert_called_once()
    service.finalize.assert_not_called()
