"""What the functions that change Lightning's trainer rest on, in the pinned version."""

import csv
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.loggers import CSVLogger

from tests.helpers.training.updates import quiet_trainer
from transformer.training.lightning_internals import (
    begin_after_update,
    loop_state,
    validate_now,
)


class Manual(BoringModel):
    """Counts its updates and validations, and logs."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.validated: list[int] = []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        self.manual_backward(self.layer(batch).sum())
        optimizer.step()
        self.log("train/step", float(self.global_step))

    def on_validation_epoch_end(self) -> None:
        self.validated.append(self.global_step)
        self.log("val/loss", 1.0)


class Resumed(Manual):
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["loops"] = loop_state(self.trainer, checkpoint["global_step"])


class At(Callback):
    """Calls a function in one hook."""

    def __init__(self, hook: str, function: Any) -> None:
        setattr(self, hook, lambda trainer, *_: function(trainer))


def trained(folder: Path, *callbacks: Callback, **options: Any) -> tuple[Trainer, Manual]:
    module, checkpoint = Manual(), options.pop("ckpt_path", None)
    settings: dict[str, Any] = {"max_steps": 4, "val_check_interval": 2}
    trainer = quiet_trainer(folder, callbacks=[*callbacks], **(settings | options))
    trainer.fit(module, ckpt_path=checkpoint)
    return trainer, module


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_start", "on_validation_end"])
def test_a_run_goes_on_after_the_last_update(tmp_path: Path, hook: str) -> None:
    def save(trainer: Trainer) -> None:
        if trainer.global_step == 2:
            trainer.save_checkpoint(tmp_path / "file")

    trained(tmp_path, At(hook, save))
    module, logger = Resumed(), CSVLogger(tmp_path / "log", name="", version="")
    begun: list[int] = []
    first = At("on_train_batch_start", lambda trainer: begun.append(trainer.global_step))
    trainer = quiet_trainer(
        tmp_path,
        max_steps=5,
        val_check_interval=2,
        log_every_n_steps=1,
        logger=logger,
        callbacks=[At("on_train_start", begin_after_update), first],
    )
    trainer.fit(module, ckpt_path=tmp_path / "file")
    assert begun == [2, 3, 4]
    assert module.validated == [4]
    with (tmp_path / "log" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows if row["train/step"]] == [2, 3, 4]
    assert [int(row["step"]) for row in rows if row["val/loss"]] == [3]


def test_a_validation_that_was_due_is_logged_at_its_update(tmp_path: Path) -> None:
    save = At("on_train_end", lambda trainer: trainer.save_checkpoint(tmp_path / "file"))
    trained(tmp_path, save, max_steps=3, val_check_interval=100)
    module, logger = Resumed(), CSVLogger(tmp_path, name="", version="")
    late = At("on_train_start", validate_now)
    settings: dict[str, Any] = {"max_steps": 4, "val_check_interval": 100, "logger": logger}
    quiet_trainer(tmp_path, callbacks=[late], **settings).fit(module, ckpt_path=tmp_path / "file")
    assert module.validated == [3]
    header, row = (tmp_path / "metrics.csv").read_text().split()
    assert dict(zip(header.split(","), row.split(","), strict=True))["step"] == "2"
