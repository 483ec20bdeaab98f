"""Stops at a signal: after the update, with a checkpoint, on all ranks alike."""

import logging
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from lightning_fabric.plugins.environments import SLURMEnvironment
from pytorch_lightning import Callback, LightningModule, Trainer

from transformer.checkpoint.run_directory import has_checkpoint
from transformer.common.errors import Interrupted
from transformer.common.processes import SIGNALS, handling

logger = logging.getLogger(__name__)


class GracefulStop(Callback):
    """Finishes the update at a signal; all ranks stop after the same update.

    It aborts a validation, with which the resumed run starts. A second Ctrl-C stops at once.
    ``leave_signals`` says why Lightning's handlers are not used (lightning_internals.py).
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._agreed: int | None = None
        self._module: Any = None
        self._alone = True
        self._at_once = False
        self._handlers = ExitStack()

    def raise_if_stopped(self) -> None:
        """Raise Interrupted if a signal has ended training, on all ranks or on none."""
        signum = self.received if self._alone else self._agreed
        if signum is not None:
            _interrupt(signum)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._alone = trainer.world_size == 1
        self._module = pl_module
        self._handlers.enter_context(handling(self._handle))

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *_: object) -> None:
        """Stop before this update (update.py skips it) if any rank has received a signal."""
        if not self._alone:
            self._agreed = self._agreed or pl_module.agreed_signal
        if self._agreed is not None or (self._alone and self.received is not None):
            trainer.should_stop = True

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Stop at once from now on, if a checkpoint of this update has just been written."""
        self._at_once = not pl_module.detector.in_a_row
        self._abort_if_stopped(trainer)

    def on_validation_batch_start(self, trainer: Trainer, *_: object) -> None:
        if trainer.world_size > 1:
            self._abort_if_stopped(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._at_once = False

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the handlers after the last checkpoint, once the ranks agree on late signals."""
        if not self._alone and self._agreed is None:
            self._any_rank(trainer)
        self._handlers.close()

    def on_exception(self, trainer: Trainer, *_: object) -> None:
        self._handlers.close()

    def _abort_if_stopped(self, trainer: Trainer) -> None:
        if self._at_once and self._any_rank(trainer):
            self.raise_if_stopped()

    def _any_rank(self, trainer: Trainer) -> bool:
        """Agree with the other ranks on a signal; a later one waits for the next call."""
        if self._alone:
            return self.received is not None
        weight = 0 if self.received is None else 1 + SIGNALS.index(self.received)
        received = torch.tensor(weight, device=trainer.strategy.root_device)
        agreed = int(trainer.strategy.reduce(received, reduce_op="max"))
        if agreed:
            self._agreed = SIGNALS[agreed - 1]
        return agreed > 0

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        is_second = self.received is not None
        if is_second and signum != signal.SIGINT:
            return  # Schedulers send it several times.
        self.received = self.received or signum
        self._module.signal = self.received
        if is_second or (self._at_once and self._alone):
            _interrupt(signum)
        late = "" if self._alone else ", or up to two later, when all ranks know"
        advice = "; press Ctrl-C again to stop at once" if signum == signal.SIGINT else ""
        name = signal.Signals(signum).name
        logger.warning("%s: stopping after this update%s%s", name, late, advice)


def raise_if_stopped(trainer: Trainer) -> None:
    """Raise Interrupted if a signal has ended the training of this trainer."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, GracefulStop):
            callback.raise_if_stopped()


@contextmanager
def stoppable(folder: Path, resume: str) -> Iterator[None]:
    """Raise Interrupted, with the resuming command; SIGUSR1 requeues a SLURM job."""
    with handling(lambda signum, frame: _interrupt(signum)):
        try:
            yield
        except Interrupted as stopped:
            if stopped.code == 128 + signal.SIGUSR1:
                _requeue()
            advice = "there is no checkpoint yet: give the same command again"
            if has_checkpoint(folder):
                advice = f"resume with {resume}"
            raise Interrupted(f"{stopped}; {advice}", stopped.code) from stopped


def _interrupt(signum: int) -> NoReturn:
    raise Interrupted(f"stopped by {signal.Signals(signum).name}", 128 + signum)


def _requeue() -> None:
    """Put the SLURM job of this process back into the queue, if there is one."""
    if not SLURMEnvironment.detect() or os.environ.get("SLURM_PROCID", "0") != "0":
        return
    job = os.environ.get("SLURM_JOB_ID", "")
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array:
        job = f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    if not re.fullmatch("[0-9_-]+", job):
        return
    try:
        subprocess.run(["scontrol", "requeue", job], check=True)
        logger.info("job %s is in the queue again; checkpoint=auto resumes it", job)
    except (OSError, subprocess.CalledProcessError) as error:
        logger.warning("scontrol requeue %s failed: %s", job, error)
