"""Signals, with a trainer that only records; tests/system stops real runs."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning import LightningModule

from tests.helpers.training.fakes import fake_trainer
from transformer.common.errors import Interrupted
from transformer.common.processes import SIGNALS
from transformer.training.callbacks.graceful_shutdown import GracefulStop, stoppable
from transformer.training.divergence import DivergenceDetector
from transformer.training.update import Outcome, Totals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[list[Any]]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield before
    gc.collect()  # What was never closed gives its handlers back when it is collected.
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def send(number: int) -> None:
    # To this very thread, and so before the next line.
    signal.raise_signal(signal.Signals(number))


def module(bad_updates: int = 0, agreed_signal: int | None = None) -> Mock:
    detector = Mock(spec=DivergenceDetector, in_a_row=bad_updates)
    return Mock(spec=LightningModule, detector=detector, agreed_signal=agreed_signal)


def listening(**changes: Any) -> tuple[GracefulStop, Mock]:
    stop, trainer = GracefulStop(), fake_trainer(**changes)
    stop.on_train_start(trainer, module())
    return stop, trainer


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_for_the_update(
    tmp_path: Path, number: int, handlers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    stop, trainer = listening()
    stop.on_train_batch_start(trainer, module(), None, 0)
    stop.on_validation_epoch_start(trainer, module())
    stop.on_validation_end(trainer, module())
    stop.raise_if_stopped()
    send(number)
    assert "stopping after this update" in caplog.text
    assert not trainer.should_stop
    stop.on_train_batch_start(trainer, module(), None, 0)
    assert trainer.should_stop
    stop.on_fit_end(trainer, module())
    assert [signal.getsignal(n) for n in SIGNALS] == handlers
    resume = "train checkpoint=run"
    with pytest.raises(Interrupted, match="no checkpoint") as caught, stoppable(tmp_path, resume):
        stop.raise_if_stopped()
    assert caught.value.code == 128 + number
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(Interrupted, match=resume), stoppable(tmp_path, resume):
        stop.raise_if_stopped()


def test_a_second_ctrl_c_alone_stops_at_once(handlers: list[Any]) -> None:
    stop, trainer = listening()
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
        send(number)
    assert not trainer.should_stop
    with pytest.raises(Interrupted) as caught:
        send(signal.SIGINT)
    assert caught.value.code == 130
    stop.on_exception(trainer, module(), caught.value)
    assert [signal.getsignal(n) for n in SIGNALS] == handlers


def test_a_validation_behind_a_checkpoint_is_aborted() -> None:
    stop, trainer = listening()
    stop.on_validation_epoch_start(trainer, module())
    with pytest.raises(Interrupted):
        send(signal.SIGTERM)
    stop, trainer = listening()
    # A bad update is not followed by a checkpoint.
    stop.on_validation_epoch_start(trainer, module(bad_updates=2))
    send(signal.SIGTERM)
    stop.on_validation_end(trainer, module())
    stop.on_train_batch_start(trainer, module(), None, 0)
    assert trainer.should_stop


def test_slurm_is_heard_by_all_whichever_rank_it_tells() -> None:
    stop, trainer = listening(world_size=2)
    send(signal.SIGTERM)
    ranks = torch.tensor([number in (signal.SIGTERM, signal.SIGUSR1) for number in SIGNALS])
    totals = Totals(torch.tensor(6), {"loss": torch.tensor(1.0)}, ranks)
    outcome = Outcome(torch.tensor(True), torch.tensor(0.5), totals, 0.125, 1)
    stop.on_train_batch_start(trainer, module(agreed_signal=outcome.numbers.signal), None, 0)
    assert trainer.should_stop
    with pytest.raises(Interrupted) as caught:
        stop.raise_if_stopped()
    assert caught.value.code == 128 + signal.SIGUSR1


def another_rank_received(trainer: Mock, number: int) -> None:
    weight = 1 + SIGNALS.index(signal.Signals(number))
    trainer.strategy.reduce = lambda tensor, reduce_op: tensor.clamp(min=weight)


def test_a_signal_waits_until_the_ranks_agree(caplog: pytest.LogCaptureFixture) -> None:
    stop, trainer = GracefulStop(), fake_trainer(world_size=2)
    trained = module()
    stop.on_train_start(trainer, trained)
    send(signal.SIGTERM)
    assert trained.signal == signal.SIGTERM
    assert "up to two later" in caplog.text
    stop.on_train_batch_start(trainer, trained, None, 0)
    assert not trainer.should_stop
    trained.agreed_signal = signal.SIGTERM
    stop.on_train_batch_start(trainer, trained, None, 0)
    assert trainer.should_stop
    # In the last update the ranks agree at its end.
    stop, trainer = listening(world_size=2)
    another_rank_received(trainer, signal.SIGTERM)
    stop.raise_if_stopped()
    stop.on_fit_end(trainer, module())
    with pytest.raises(Interrupted, match="SIGTERM"):
        stop.raise_if_stopped()


@pytest.mark.parametrize("on_this_rank", [True, False])
def test_a_signal_to_any_rank_aborts_a_validation(on_this_rank: bool) -> None:
    stop, trainer = listening(world_size=2)
    stop.on_validation_epoch_start(trainer, module())
    if on_this_rank:
        send(signal.SIGTERM)
    else:
        another_rank_received(trainer, signal.SIGTERM)
    with pytest.raises(Interrupted, match="SIGTERM"):
        stop.on_validation_batch_start(trainer, module(), None, 0)
    stop.on_train_batch_start(trainer, module(), None, 0)
    assert trainer.should_stop


def test_where_there_is_nothing_to_finish_it_stops_at_once(handlers: list[Any]) -> None:
    with pytest.raises(Interrupted) as caught, stoppable(Path("run"), ""):
        send(signal.SIGTERM)
    assert caught.value.code == 143
    assert [signal.getsignal(n) for n in SIGNALS] == handlers


def test_slurm_gets_the_job_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = tmp_path / "calls"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    slurm = {"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "17"}
    array = {"SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "3"}
    for number, environment, job in (
        (signal.SIGTERM, {}, ""),
        (signal.SIGUSR1, {}, "requeue 17\n"),
        (signal.SIGUSR1, {"SLURM_JOB_ID": "17; rm -r ."}, ""),
        (signal.SIGUSR1, array, "requeue 16_3\n"),
        (signal.SIGUSR1, {"SLURM_PROCID": "1"}, ""),
    ):
        calls.write_text("")
        for name, value in (slurm | environment).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(Interrupted), stoppable(tmp_path, ""):
            send(number)
        assert calls.read_text() == job
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Interrupted), stoppable(tmp_path, ""):
        send(signal.SIGUSR1)
    assert "scontrol requeue 16_3 failed" in caplog.text
