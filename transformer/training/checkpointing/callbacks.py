"""Callbacks that write checkpoints, without paths: the newest, the best, and the last few."""

from pathlib import Path
from typing import Any, NoReturn

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from transformer.checkpoint.locate import LAST
from transformer.common.errors import AnotherRankFailed, InputError
from transformer.common.files import remove_parts
from transformer.training.checkpointing import checkpoint_io
from transformer.training.checkpointing.averaging import newest_checkpoints
from transformer.training.checkpointing.run_directory import mark_unfinished
from transformer.training.checkpointing.training_state import SavedCallback
from transformer.training.lightning_internals import (
    begin_after_update,
    set_max_steps,
    validate_now,
)
from transformer.training.model_selection import ModelSelection

_FILES = (f"{LAST}.ckpt", "best.ckpt", "step-*.ckpt")


def save(trainer: Trainer, path: Path, *, weights_only: bool = False) -> InputError | None:
    """Write a checkpoint; returns the error on all ranks, None if it was written."""
    trainer.save_checkpoint(path, weights_only)
    writer: Any = trainer.strategy.checkpoint_io
    writer.wait()
    # Only rank 0 writes; all ranks must act alike.
    message = trainer.strategy.broadcast(str(writer.error or ""))
    return InputError(message) if message else None


class LastCheckpoint(SavedCallback, Checkpoint):
    """Writes ``last.ckpt``: at the start, at an interval, before every validation, at the end.

    It has the state after a whole update, and whether a validation follows. With ``validates``, a
    new run also validates before its first update. Lightning's ``ModelCheckpoint`` does not know
    whether a validation is due, and the first file that cannot be written ends the run.
    """

    def __init__(self, folder: Path, interval: int | None, *, validates: bool = False) -> None:
        self.path = folder / f"{LAST}.ckpt"
        self.interval = interval
        self.validates = validates
        self._saved: tuple[int, bool] | None = None
        self._max_steps: int | None = None
        self._should_stop = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let a finished run whose last validation is missing start."""
        if self.validates:
            self._max_steps, self._should_stop = trainer.max_steps, trainer.should_stop
            set_max_steps(trainer, -1)
            trainer.should_stop = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Save a new run, or a run after a return; run a validation that a stop prevented."""
        begin_after_update(trainer)
        unused = None
        if trainer.is_global_zero:
            remove_parts(self.path.parent, *_FILES)
            if not trainer.should_stop:
                run = self.path.parent.parent
                mark_unfinished(run)
                checkpoint_io.set_aside_outdated(run)
                unused = checkpoint_io.set_aside_unused(self.path.parent, trainer.ckpt_path)
        self._saved = (trainer.global_step, self.validates)
        is_new = not trainer.strategy.broadcast(self.path.exists())
        saves = is_new or pl_module.detector.returned
        if saves and (error := self._save(trainer)) and is_new:
            if unused is not None:
                unused.rename(self.path)
            _raise_on_rank(error, trainer)
        if self.validates:
            if self._max_steps is not None:
                set_max_steps(trainer, self._max_steps)
            validate_now(trainer)
            trainer.should_stop |= self._should_stop

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *_: object) -> None:
        """Save at the interval, after all callbacks of the last update."""
        assert self._saved is not None
        since = trainer.global_step - self._saved[0]
        if self.interval is not None and since >= self.interval and not trainer.should_stop:
            self._save_unless_bad(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        self.validates = True
        self._save_unless_bad(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the end of the validation before the best and recent checkpoints are written."""
        self.validates = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the final state; raises InputError if it cannot be written."""
        if self._saved != (trainer.global_step, False) and (error := self._save(trainer)):
            _raise_on_rank(error, trainer)

    def _save_unless_bad(self, trainer: Trainer, pl_module: Any) -> None:
        """Save, unless the last update was bad, perhaps because of the weights.

        FSDP writes in the background; a write that fails is logged, and the old file is kept.
        """
        if not pl_module.detector.in_a_row:
            self._saved = (trainer.global_step, self.validates)
            trainer.save_checkpoint(self.path, weights_only=False)

    def _save(self, trainer: Trainer) -> InputError | None:
        self._saved = (trainer.global_step, self.validates)
        return save(trainer, self.path)


class BestCheckpoint(SavedCallback, Checkpoint):
    """Writes ``best.ckpt``: the state at the best validation so far."""

    def __init__(self, folder: Path, selection: ModelSelection) -> None:
        self.path = folder / "best.ckpt"
        self.selection = selection
        self.best: tuple[float, float] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.strategy.broadcast(self.path.exists()):
            self.best = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        values = self.selection.values(trainer.callback_metrics)
        if self.selection.better(values, self.best):
            before, self.best = self.best, values
            if save(trainer, self.path):
                self.best = before


class RecentCheckpoints(Checkpoint):
    """Keeps the weights, not their average, of the last ``keep`` validations; below 0 of all."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Delete files of later updates, if the run has returned to an earlier one."""
        if trainer.is_global_zero:
            for file in newest_checkpoints(self.folder.parent):
                if int(file.stem.removeprefix("step-")) > trainer.global_step:
                    file.unlink()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save, except before the first update, and delete the oldest."""
        if not self.keep or not trainer.global_step:
            return
        path = self.folder / f"step-{trainer.global_step:08d}.ckpt"
        failed = save(trainer, path, weights_only=True)
        if trainer.is_global_zero and self.keep > 0 and not failed:
            for file in newest_checkpoints(self.folder.parent)[: -self.keep]:
                file.unlink()


def _raise_on_rank(error: InputError, trainer: Trainer) -> NoReturn:
    """Raise the error on rank 0, which reports it; the other ranks raise a silent error."""
    raise error if trainer.is_global_zero else AnotherRankFailed(str(error))
