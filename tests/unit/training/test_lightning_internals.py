"""What the functions that change Lightning's trainer rest on, in the pinned version."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.loggers import CSVLogger

from tests.helpers.training.updates import quiet_trainer
from transformer.training.lightning_internals import begin_after_update, loop_state, validate_now


class Manual(BoringModel):
    """Counts its updates and validations, and logs."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.begun: list[int] = []
        self.validated: list[int] = []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.begun.append(self.global_step)
        optimizer: Any = self.optimizers()
        self.manual_backward(self.layer(batch).sum())
        optimizer.step()
        self.log("train/step", float(self.global_step))

    def on_validation_epoch_end(self) -> None:
        self.validated.append(self.global_step)
        self.log("val/loss", 1.0)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["loops"] = loop_state(self.trainer, checkpoint["global_step"])


def fitted(folder: Path, hook: str, function: Callable[[Trainer], None], **options: Any) -> Manual:
    """A module after a fit from ``folder/file``, if it exists, with a function in one hook."""
    callback = Callback()
    setattr(callback, hook, lambda trainer, *_: function(trainer))
    logger = CSVLogger(folder / "log", name="", version="")
    file = folder / "file"
    trainer = quiet_trainer(
        folder, callbacks=[callback], logger=logger, log_every_n_steps=1, **options
    )
    module = Manual()
    trainer.fit(module, ckpt_path=file if file.exists() else None)
    return module


def logged_steps(folder: Path, name: str) -> list[int]:
    with (folder / "log" / "metrics.csv").open() as file:
        return [int(row["step"]) for row in csv.DictReader(file) if row[name]]


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_start", "on_validation_end"])
def test_a_run_goes_on_after_the_last_update(tmp_path: Path, hook: str) -> None:
    def save(trainer: Trainer) -> None:
        if trainer.global_step == 2:
            trainer.save_checkpoint(tmp_path / "file")

    fitted(tmp_path, hook, save, max_steps=4, val_check_interval=2)
    options = {"max_steps": 5, "val_check_interval": 2}
    module = fitted(tmp_path, "on_train_start", begin_after_update, **options)
    assert module.begun == [2, 3, 4]
    assert module.validated == [4]
    assert logged_steps(tmp_path, "train/step") == [2, 3, 4]
    assert logged_steps(tmp_path, "val/loss") == [3]


def test_a_validation_that_was_due_is_logged_at_its_update(tmp_path: Path) -> None:
    def save(trainer: Trainer) -> None:
        trainer.save_checkpoint(tmp_path / "file")

    fitted(tmp_path, "on_train_end", save, max_steps=3, val_check_interval=100)
    options = {"max_steps": 4, "val_check_interval": 100}
    module = fitted(tmp_path, "on_train_start", validate_now, **options)
    assert module.validated == [3]
    assert logged_steps(tmp_path, "val/loss") == [2]
