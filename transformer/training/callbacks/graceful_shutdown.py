"""Stopping at a signal: after the update, with a checkpoint, on every rank alike.

It does not write checkpoints: saving.py does, where training ends.
"""

import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning_fabric.plugins.environments import SLURMEnvironment
from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.common.errors import Interrupted
from transformer.training.checkpointing.run_directory import has_checkpoint
from transformer.training.optimization.divergence import DivergenceDetector

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Ctrl-C; what a scheduler says before it takes the machine away; what SLURM says so with.

Where ranks hear different ones the last of these counts: the job is to come back."""


class GracefulStop(Callback):
    """Lets a signal finish the update, so that the checkpoint is of a whole update.

    All ranks stop after the same update. A validation, before which a checkpoint has been written,
    is broken off, and comes first when the run goes on. A second Ctrl-C stops at once.

    Args:
        folder: The run directory, to say how to go on.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.heard: int | None = None
        self._alone, self._at_once = True, False
        self._previous: dict[int, Any] = {}

    def raise_if_stopped(self) -> None:
        """Tell who started the training.

        Raises:
            Interrupted: A signal has ended it.
        """
        if self.heard is not None:
            raise interrupted(self.heard, self.folder)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen."""
        self._alone = trainer.world_size == 1
        self._previous = listen(self._hear)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Ask for the stop before this update, if any rank has been told to (update.py obeys)."""
        if self._any_rank(trainer):
            trainer.should_stop = True

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From now on stop at once, if a checkpoint of this update has just been written."""
        detector = pl_module.detector
        self._at_once = isinstance(detector, DivergenceDetector) and not detector.in_a_row
        self._break_off(trainer)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Break off, if any rank has been told to."""
        if trainer.world_size > 1:
            self._break_off(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From now on finish the update."""
        self._at_once = False

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Hand the signals back, now that the last checkpoint is written."""
        hand_back(self._previous)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Hand the signals back."""
        hand_back(self._previous)

    def _break_off(self, trainer: Trainer) -> None:
        if self._at_once and self._any_rank(trainer):
            self.raise_if_stopped()

    def _any_rank(self, trainer: Trainer) -> bool:
        """Agree with the other ranks, who may have been told something else or nothing.

        What comes after the ranks have agreed waits for the next time, or they would part.
        """
        if self._alone:
            return self.heard is not None
        weight = 0 if self.heard is None else 1 + SIGNALS.index(self.heard)
        told = torch.tensor(weight, device=trainer.strategy.root_device)
        agreed = int(trainer.strategy.reduce(told, reduce_op="max"))
        if agreed:
            self.heard = SIGNALS[agreed - 1]
        return agreed > 0

    def _hear(self, signum: int, frame: FrameType | None) -> None:
        again = self.heard is not None
        if again and signum != signal.SIGINT:
            return  # Schedulers say it several times.
        self.heard = self.heard or signum
        if again or (self._at_once and self._alone):
            raise interrupted(signum, self.folder)
        says = "; press Ctrl-C again to stop at once" if signum == signal.SIGINT else ""
        logger.warning("%s: stopping after this update%s", signal.Signals(signum).name, says)


def raise_if_stopped(trainer: Trainer) -> None:
    """Tell what has ended the training, if it was a signal.

    Raises:
        Interrupted: It was.
    """
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, GracefulStop):
            callback.raise_if_stopped()


@contextmanager
def stoppable(folder: Path) -> Iterator[None]:
    """Turn signals into an exception at once, where there is nothing to finish first.

    On a SLURM cluster the job is put back into the queue when it was SIGUSR1
    (``#SBATCH --signal=SIGUSR1@90``), as Lightning does.

    Args:
        folder: The run directory, to say how to go on.

    Raises:
        Interrupted: There was a signal.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        raise interrupted(signum, folder)

    previous = listen(stop)
    try:
        yield
    except Interrupted as stopped:
        if stopped.code == 128 + signal.SIGUSR1:
            _requeue()
        raise
    finally:
        hand_back(previous)


def interrupted(signum: int, folder: Path) -> Interrupted:
    """What to tell the user, and the exit code that a shell knows the signal by."""
    how = (
        f"go on with: transformer train checkpoint={folder}"
        if has_checkpoint(folder)
        else "there is no checkpoint yet: give the same command again"
    )
    return Interrupted(f"stopped by {signal.Signals(signum).name}; {how}", 128 + signum)


def listen(heard: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Let the signals call a function; returns who heard them before.

    Only this process is meant: one that it forks, to load data, leaves at SIGTERM and lets its
    parent decide about the others.
    """
    process = os.getpid()

    def hear(signum: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            heard(signum, frame)
        elif signum == signal.SIGTERM:
            os._exit(128 + signum)

    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, hear) for number in SIGNALS}


def hand_back(previous: dict[int, Any]) -> None:
    """Let the signals be heard by those who heard them before."""
    for number, handler in previous.items():
        signal.signal(number, handler)
    previous.clear()


def _requeue() -> None:
    """Put the job of this process back into the queue, where there is one."""
    if not SLURMEnvironment.detect() or os.environ.get("SLURM_PROCID", "0") != "0":
        return
    job = os.environ.get("SLURM_JOB_ID", "")
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        job = f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    if not re.fullmatch("[0-9_-]+", job):
        return
    try:
        subprocess.run(["scontrol", "requeue", job], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        logger.warning("scontrol requeue %s failed: %s", job, error)
    else:
        logger.info("job %s is in the queue again; with checkpoint=auto it goes on by itself", job)
