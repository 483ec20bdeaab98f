"""Lightning's trainer for a run of any task."""

import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.strategies import Strategy
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from transformer.common.errors import InputError
from transformer.common.own_code import own_class
from transformer.data.batching.batch_sequence import RankAssignment, next_batch
from transformer.data.datamodules.base import BatchModule
from transformer.settings.run import RunConfig, plain_values
from transformer.settings.training import TrainerConfig
from transformer.training.callbacks.best_score import Patience
from transformer.training.callbacks.ema import MovingAverage
from transformer.training.callbacks.graceful_shutdown import GracefulStop
from transformer.training.callbacks.loggers import ContinuedLogs, ContinuedRecords, build_loggers
from transformer.training.callbacks.metrics import LastValidation, Measure
from transformer.training.callbacks.progress import ProgressBar
from transformer.training.checkpointing import (
    AtomicCheckpointIO,
    BestCheckpoint,
    LastCheckpoint,
    RecentCheckpoints,
    Resumable,
)
from transformer.training.distributed.ddp import replicated_strategy, resolve_devices
from transformer.training.distributed.launcher import count_devices
from transformer.training.distributed.ranks import external_rank
from transformer.training.lightning_internals import leave_signals
from transformer.training.model_selection import ModelSelection
from transformer.training.precision import resolve_precision

_OURS = (
    "accumulate_grad_batches",
    "compile",
    "cuda_graphs",
    "gradient_clip_val",
    "max_epochs",
    "search_tokens",
)
"""Keys of the group ``trainer`` that Lightning does not get: its batch is a whole update
(update.py), and its epoch has no end (loader.py)."""


def build_trainer(
    config: RunConfig,
    folder: Path,
    validation: Sequence[Callback],
    selection: ModelSelection,
    resume: Resumable | None = None,
    max_steps: int = -1,
) -> Trainer:
    """Lightning's trainer with the user's arguments; raises InputError if it rejects one.

    Training ends after ``max_steps`` updates in all, if that is less than ``trainer.max_steps``.
    """
    _quieten_lightning()
    resolved = resolve_devices(resolve_precision(config.trainer))
    arguments = {key: value for key, value in asdict(resolved).items() if key not in _OURS}
    arguments["strategy"] = _strategy(config, resolved)
    if max_steps >= 0 and not 0 <= resolved.max_steps <= max_steps:
        arguments["max_steps"] = max_steps
    if 0 < arguments["max_steps"] < resolved.log_every_n_steps:
        # A short run has one line of its loss, too.
        arguments["log_every_n_steps"] = arguments["max_steps"]
    callbacks = build_callbacks(config, validation, selection, folder / "checkpoints")
    loggers = build_loggers(config.logger, folder, plain_values(config))
    if config.logger.wandb is not None:
        callbacks.append(ContinuedRecords())
    try:
        trainer = Trainer(
            **arguments,
            max_epochs=-1,
            default_root_dir=folder,
            plugins=[AtomicCheckpointIO(resume)],
            logger=loggers,
            callbacks=callbacks,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise InputError(f"trainer: {' '.join(str(error).split())}") from error
    leave_signals(trainer)
    return trainer


def build_callbacks(
    config: RunConfig, validation: Sequence[Callback], selection: ModelSelection, folder: Path
) -> list[Callback]:
    """All callbacks in their order; fine-tuning validates before its first update, too."""
    settings = config.callbacks
    # First, so that a signal aborts a validation before the callbacks of the task start.
    callbacks: list[Callback] = [GracefulStop()]
    if settings.ema_decay:
        # Before the task's, which must see the averaged weights.
        callbacks.append(MovingAverage(decay=settings.ema_decay))
    callbacks += [own_class("callbacks.own", name, Callback)() for name in settings.own]
    callbacks += [*validation, Measure(), ContinuedLogs(), ProgressBar(selection.metric)]
    callbacks.append(LastValidation())
    if settings.patience is not None:
        callbacks.append(Patience(selection, settings.patience))
    return [
        *callbacks,
        BestCheckpoint(folder, selection),
        RecentCheckpoints(folder, settings.keep_last),
        LastCheckpoint(folder, settings.save_interval, validates=config.finetune_from is not None),
    ]


def _strategy(config: RunConfig, trainer: TrainerConfig) -> Strategy | str:
    if trainer.strategy == "fsdp":
        from transformer.training.distributed.fsdp import ShardedStrategy

        return ShardedStrategy(count_devices(trainer) * trainer.num_nodes)
    if trainer.devices in (1, "1") and trainer.num_nodes == 1:
        return "auto"
    return replicated_strategy(config.model)


def updates_of_epochs(
    epochs: int, data: BatchModule, done: int = 0, before: dict[str, Any] | None = None
) -> int:
    """The number of updates at the end of so many epochs: the sequence of batches has no end."""
    rank = external_rank()
    ranks = 1 if rank is None else rank.ranks
    sequence = data.sequence
    assignment = RankAssignment(ranks, data.accumulation)
    assert sequence.epoch_length is not None  # not of a stream (settings/run.py)
    end = epochs * sequence.epoch_length
    batches = end - next_batch(before, done, sequence, assignment)
    return done + max(0, math.ceil(batches / assignment.batches))


def end_reason(trainer: Trainer, config: RunConfig) -> tuple[str, str]:
    """The key that has ended training, or all candidates, and a message."""
    done = trainer.global_step
    last = trainer.max_steps
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if 0 <= last <= done:
        name = "max_steps" if last == config.trainer.max_steps else "max_epochs"
        key = f"trainer.{name}"
        limit = f"{key}={getattr(config.trainer, name)}"
        if last < done:
            return key, f"the run has done {done} updates, more than {limit}"
        return key, f"all {done} updates of {limit} are done"
    for callback in callbacks:
        if isinstance(callback, Patience) and callback.waited >= callback.patience:
            key = "callbacks.patience"
            return key, f"{key}={callback.patience} has ended training after update {done}"
        if isinstance(callback, Timer) and (callback.time_remaining() or 0) <= 0:
            key = "trainer.max_time"
            of_all = f" of {last}" if last >= 0 else ""
            return key, f"{key}={config.trainer.max_time} is over after update {done}{of_all}"
    keys = "trainer.max_steps, trainer.max_epochs, trainer.max_time or callbacks.patience"
    return keys, f"all {done} updates are done"


def _quieten_lightning() -> None:
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*smaller than the logging interval.*",
        ".*LeafSpec.*",
        # The resumed run had max_time or patience, and this one has not.
        ".*when using `ckpt_path`, callbacks.*",
        "Experiment logs directory.*",
        "Checkpoint directory.*exists and is not empty.*",
        ".*in eval mode at the start of training.*",
        # ``forward_sync_buffers``, its new name, is unknown to torch 2.11.
        "`broadcast_buffers` is deprecated.*",
        # Logged values are equal on all ranks.
        ".*sync_dist=True.*",
        # Our code does not change it in place.
        ".*FSDP2-wrapped module.*view.*",
    ):
        warnings.filterwarnings("ignore", message=message)
