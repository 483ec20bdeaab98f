"""When and how training writes checkpoints, and what becomes of one that it outdates.

What a file holds is ``model/checkpoint.py``'s business.
"""

import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint, ModelCheckpoint
from pytorch_lightning.plugins.io import CheckpointIO

from transformer.model.checkpoint import TUNED, read_payload, write_payload
from transformer.training.recovery import Judge

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Criterion:
    """What tells which of two checkpoints is better.

    Attributes:
        metric: A value that every validation logs.
        mode: Whether more of it is better, or less.
    """

    metric: str
    mode: Literal["max", "min"]


class AtomicCheckpointIO(CheckpointIO):
    """Writes a file whole or not at all, and opens it with ``weights_only=True`` alone."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write."""
        write_payload(checkpoint, Path(path))

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read, onto the CPU; Lightning moves what it needs."""
        return read_payload(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        """Delete a file that a better or newer one has replaced."""
        Path(path).unlink(missing_ok=True)


class LastCheckpoint(Checkpoint):
    """Keeps ``last.ckpt``: after every validation, and wherever training stops.

    A run that has none begins with one, so that there is a state to go back to.

    Lightning runs checkpoint callbacks after all others, so that it sees who has asked to stop.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "last.ckpt"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save where a run begins, or has gone back with a lower learning rate."""
        judge: Judge = pl_module.judge  # type: ignore[assignment]
        if not trainer.strategy.broadcast(self.path.exists()) or judge.returned:
            trainer.save_checkpoint(self.path)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save when this was the last batch."""
        if trainer.should_stop or trainer.global_step == trainer.max_steps:
            trainer.save_checkpoint(self.path)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after a validation inside training, unless the run may have to go back from here."""
        judge: Judge = pl_module.judge  # type: ignore[assignment]
        if trainer.state.fn == "fit" and not trainer.sanity_checking and not judge.in_a_row:
            trainer.save_checkpoint(self.path)


def set_aside_tuned(folder: Path) -> None:
    """Rename ``tuned.ckpt``: where training goes on, it is no longer the best that the run has."""
    tuned = folder / f"{TUNED}.ckpt"
    if tuned.exists():
        written = datetime.fromtimestamp(tuned.stat().st_mtime)
        aside = folder / f"outdated-{TUNED}-{written:%Y-%m-%d_%H-%M-%S}.ckpt"
        tuned.rename(aside)
        logger.info("%s is of before this training; it is kept as %s", tuned, aside.name)


def checkpoint_callbacks(folder: Path, keep_last: int, criterion: Criterion) -> list[Checkpoint]:
    """``best.ckpt`` by the criterion, ``last.ckpt``, and the ``keep_last`` newest to average."""
    best = ModelCheckpoint(
        folder,
        filename="best",
        monitor=criterion.metric,
        mode=criterion.mode,
        save_top_k=1,
        save_on_train_epoch_end=False,
        auto_insert_metric_name=False,
        enable_version_counter=False,
    )
    recent = ModelCheckpoint(
        folder,
        filename="step-{step:08d}",
        monitor="step",
        mode="max",
        save_top_k=keep_last,
        save_weights_only=True,
        save_on_train_epoch_end=False,
        auto_insert_metric_name=False,
        enable_version_counter=False,
    )
    return [best, recent, LastCheckpoint(folder)]
