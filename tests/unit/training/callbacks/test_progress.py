"""A bar on a terminal, lines in the log elsewhere."""

import io
import logging
import sys
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning.callbacks import Timer

from tests.helpers.training.fakes import fake_module, fake_trainer
from transformer.training.callbacks.progress import ProgressBar

METRICS = {
    "train/loss": torch.tensor(2.34567),
    "val/bleu": torch.tensor(31.25),
    "train/tokens_per_second": torch.tensor(12345.6),
}


def run(trainer: Any, steps: list[int]) -> None:
    """After each, the trainer has done so many updates; after the second it has validated."""
    scores = [name for name in trainer.callback_metrics if name.startswith("val/")]
    bar, module = ProgressBar(*scores), fake_module()
    bar.on_train_start(trainer, module)
    for step in steps:
        trainer.global_step = step
        bar.on_train_batch_end(trainer, module, None, None, 0)
        if step == steps[1] and any(name.startswith("val/") for name in trainer.callback_metrics):
            bar.on_validation_end(trainer, module)
    bar.on_train_end(trainer, module)


def test_no_terminal_no_bar(
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Four updates take 100 seconds, the next two 200: 25 and 50 seconds an update on average.
    monkeypatch.setattr("time.monotonic", Mock(side_effect=[0.0, 100.0, 300.0]))
    with caplog.at_level(logging.INFO):
        run(fake_trainer(callback_metrics=METRICS), [1, 3, 4, 6])
    assert capfd.readouterr() == ("", "")
    shown = "loss 2.346  BLEU 31.2 at update 3  12,346 tokens/s"
    assert caplog.messages == [
        f"update 4/40, epoch 0.4: {shown}  left 0:15:00",
        f"update 6/40, epoch 0.6: {shown}  left 0:28:20",
    ]
    # A bound in time may be reached first.
    caplog.clear()
    monkeypatch.setattr("time.monotonic", Mock(side_effect=[0.0, 100.0, 0.0]))
    timer = Mock(spec=Timer, time_remaining=lambda: 90.2)
    with caplog.at_level(logging.INFO):
        run(fake_trainer(callbacks=[timer]), [1, 3, 4])
        run(fake_trainer(callbacks=[timer], estimated_stepping_batches=float("inf")), [1, 3, 4])
        # Other ranks log nothing.
        run(fake_trainer(is_global_zero=False, global_step=4), [5, 6])
    assert [line[-12:] for line in caplog.messages] == ["left 0:01:30"] * 2


def test_a_line_without_bleu_end_or_epoch(caplog: pytest.LogCaptureFixture) -> None:
    metrics = {"train/loss": torch.tensor(2.34567), "val/accuracy": torch.tensor(93.254)}
    with caplog.at_level(logging.INFO):
        run(fake_trainer(callback_metrics=metrics), [39, 41])
        run(fake_trainer(estimated_stepping_batches=float("inf")), [1, 2, 3])
        run(fake_trainer(datamodule=Mock(epochs=lambda done: None)), [1, 40, 41])
    assert caplog.messages == [
        "update 41/40, epoch 4.1: accuracy 93.25 at update 41",
        "update 2/?, epoch 0.2: ",
        "update 40/40: ",
    ]


def test_a_terminal_gets_a_bar_and_lines_of_the_log_above_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    trainer = fake_trainer(callback_metrics=METRICS, estimated_stepping_batches=float("inf"))
    bar = ProgressBar()
    line = "[red]:smile: " + "word " * 30 + "end"
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    handler = logging.StreamHandler(terminal)
    logging.getLogger().addHandler(handler)
    try:
        bar.on_train_start(trainer, fake_module())
        logging.getLogger("transformer").warning(line)
        # After a validation at the start the trainer knows the last update.
        trainer.estimated_stepping_batches = 40
        trainer.global_step = 40
        bar.on_train_batch_end(trainer, fake_module(), None, None, 0)
        bar.on_exception(trainer, fake_module(), ValueError())
    finally:
        logging.getLogger().removeHandler(handler)
    assert handler.stream is terminal and not handler.filters
    before, _, after = terminal.getvalue().partition(line + "\n")
    # The bar is wiped off before it, and drawn again after it.
    assert before.endswith("\r\x1b[2K")
    assert "--:--" in before
    assert "40/40  epoch 4.0  loss 2.346" in after and "update 40/40" not in after
    assert bar.progress is None
