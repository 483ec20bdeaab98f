"""The callbacks that write checkpoints: the newest, the best, and the last few to average.

Each knows its files by their names in its folder and remembers no path, so that a run goes on after
its directory has been moved or copied. ``model/checkpoint/checkpoint.py`` knows what a file holds,
resumption.py where training stands in it.
"""

from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from transformer.common.errors import AnotherRankFailed, InputError
from transformer.model.checkpoint.archive import remove_leftovers
from transformer.model.checkpoint.locate import LAST
from transformer.model.checkpoint.sharded import SUFFIX
from transformer.training.checkpointing.averaging import newest_checkpoints
from transformer.training.checkpointing.checkpoint_io import (
    AtomicCheckpointIO,
    Criterion,
    set_aside_outdated,
    set_aside_unused,
)
from transformer.training.checkpointing.restore import validate_now
from transformer.training.checkpointing.run_directory import mark_unfinished
from transformer.training.optimization.divergence import DivergenceDetector

_OTHERS = ("best.ckpt", "step-*.ckpt", f"*{SUFFIX}")


def saved(trainer: Trainer, path: Path, *, weights_only: bool = False) -> InputError | None:
    """Write a checkpoint; returns to all ranks why it could not be written."""
    trainer.save_checkpoint(path, weights_only)
    writer = trainer.strategy.checkpoint_io
    error = writer.error if isinstance(writer, AtomicCheckpointIO) else None
    # Rank 0 has written the file, and the others must do as it does.
    said = trainer.strategy.broadcast(None if error is None else str(error))
    return None if said is None else InputError(said)


class LastCheckpoint(Checkpoint):
    """Keeps ``last.ckpt``: before every validation, every few updates, and where training stops.

    What it says is always true of a whole update, with all its metrics logged, and of the
    validation after it that is still to come, if there is one. A run that has no such file begins
    with one, so that there is a state to go back to.

    Lightning runs checkpoint callbacks after all others, so that it sees who has asked to stop.

    Args:
        folder: Where.
        interval: Updates from one writing to the next, validations apart; None writes no others.
    """

    def __init__(self, folder: Path, interval: int | None) -> None:
        self.path = folder / f"{LAST}.ckpt"
        self.interval = interval
        self.validates = False
        self._saved: tuple[int, bool] | None = None
        self._bound: int | None = None
        self._ends = False

    def state_dict(self) -> dict[str, Any]:
        """Whether a validation comes next."""
        return {"validates": self.validates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember that a validation comes next."""
        self.validates = state_dict["validates"]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let a run whose last validation is still to come begin, though all updates are done."""
        if self.validates:
            self._bound, self._ends = trainer.max_steps, trainer.should_stop
            trainer.fit_loop.epoch_loop.max_steps = -1
            trainer.should_stop = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validate if the run was stopped before; save where a run begins or has gone back.

        Raises:
            InputError: A run that begins cannot be saved: nothing would be left of it.
            AnotherRankFailed: The same, on the ranks that wait for the one that writes.
        """
        # Lightning would repeat or leave out a part of what it thinks it was in.
        trainer.fit_loop.epoch_loop.restarting = False
        unused = None
        if trainer.is_global_zero:
            remove_leftovers(self.path.parent, (self.path.name, *_OTHERS))
            if not trainer.should_stop:
                run = self.path.parent.parent
                mark_unfinished(run)
                set_aside_outdated(run)
                unused = set_aside_unused(self.path.parent, trainer.ckpt_path)
        self._saved = (trainer.global_step, self.validates)
        begins = not trainer.strategy.broadcast(self.path.exists())
        if begins or _divergence_detector(pl_module).returned:
            error = self._save(trainer)
            if begins and error:
                if unused is not None:
                    unused.rename(self.path)
                raise error if trainer.is_global_zero else AnotherRankFailed(str(error))
        if self.validates:
            if self._bound is not None:
                trainer.fit_loop.epoch_loop.max_steps = self._bound
            validate_now(trainer)
            trainer.should_stop |= self._ends

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Save when it is time to, all being done that the last update brought with it."""
        assert self._saved is not None
        since = trainer.global_step - self._saved[0]
        if self.interval is not None and since >= self.interval and not trainer.should_stop:
            self._save_unless_bad(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save before a validation inside training, which may take long."""
        if trainer.state.fn == "fit":
            self.validates = True
            self._save_unless_bad(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note that it is over before the best and the recent are saved, which say so too."""
        self.validates = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save what training ends with.

        Raises:
            InputError: It cannot be written.
            AnotherRankFailed: The same, on the ranks that wait for the one that writes.
        """
        if self._saved != (trainer.global_step, False) and (error := self._save(trainer)):
            raise error if trainer.is_global_zero else AnotherRankFailed(str(error))

    def _save_unless_bad(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save, unless the weights may be what makes the updates bad (recovery.py)."""
        if not _divergence_detector(pl_module).in_a_row:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> InputError | None:
        self._saved = (trainer.global_step, self.validates)
        return saved(trainer, self.path)


class BestCheckpoint(Checkpoint):
    """Keeps ``best.ckpt``: what the best validation so far has found."""

    def __init__(self, folder: Path, criterion: Criterion) -> None:
        self.path = folder / "best.ckpt"
        self.criterion = criterion
        self.score: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """The score to be beaten."""
        return {"score": self.score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the score to be beaten."""
        self.score = state_dict["score"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the score if the file that had it is not there."""
        if not trainer.strategy.broadcast(self.path.exists()):
            self.score = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save if this is the best."""
        if trainer.state.fn != "fit":
            return
        score = float(trainer.callback_metrics[self.criterion.metric])
        if self.criterion.better(score, self.score):
            before, self.score = self.score, score
            if saved(trainer, self.path):
                self.score = before


class RecentCheckpoints(Checkpoint):
    """Keeps the weights of the last few validations for ``average``: ``step-00001000.ckpt``.

    They are the weights themselves, not their moving average, which best.ckpt holds.

    Args:
        folder: Where.
        keep: How many; below 0 all.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Delete those of updates that the run has gone back behind."""
        if trainer.is_global_zero:
            for file in newest_checkpoints(self.folder.parent):
                if int(file.stem.removeprefix("step-")) > trainer.global_step:
                    file.unlink()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save, and delete the oldest."""
        if trainer.state.fn != "fit" or not self.keep:
            return
        path = self.folder / f"step-{trainer.global_step:08d}.ckpt"
        failed = saved(trainer, path, weights_only=True)
        if trainer.is_global_zero and self.keep > 0 and not failed:
            for file in newest_checkpoints(self.folder.parent)[: -self.keep]:
                file.unlink()


def checkpoint_callbacks(
    folder: Path, criterion: Criterion, *, keep_last: int, interval: int | None
) -> list[Checkpoint]:
    """``best.ckpt`` by the criterion, the newest few to average, and ``last.ckpt``."""
    return [
        BestCheckpoint(folder, criterion),
        RecentCheckpoints(folder, keep_last),
        LastCheckpoint(folder, interval),
    ]


def _divergence_detector(module: LightningModule) -> DivergenceDetector:
    detector = module.detector
    assert isinstance(detector, DivergenceDetector)
    return detector
