"""Lightning's trainer for a run: the user's arguments, our callbacks, and no surprises.

It does not know what is trained.
"""

import logging
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.strategies import Strategy
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from transformer.data.batch_module import BatchModule
from transformer.data.shares import Shares, next_batch
from transformer.errors import InputError
from transformer.training.callbacks import CallbacksConfig, LastValidation, Measure, MovingAverage
from transformer.training.checkpoint import AtomicCheckpointIO, Criterion
from transformer.training.config import RunConfig
from transformer.training.loggers import ContinuedLogs, build_loggers
from transformer.training.patience import Patience
from transformer.training.processes import build_strategy, placed
from transformer.training.progress import ProgressBar
from transformer.training.saving import checkpoint_callbacks
from transformer.training.sharding import ShardedStrategy
from transformer.training.stopping import GracefulStop

_OURS = ("accumulate_grad_batches", "gradient_clip_val", "max_epochs")
"""Keys of the group ``trainer`` that Lightning is not to act on: what it calls a batch is a whole
update (update.py), and what it calls an epoch has no end (loader.py)."""


def build_trainer(
    config: RunConfig, folder: Path, validation: Sequence[Callback], criterion: Criterion
) -> Trainer:
    """Lightning's trainer with the user's arguments and our callbacks.

    Raises:
        InputError: Lightning refuses an argument.
    """
    _quieten_lightning()
    arguments = {k: v for k, v in placed(config.trainer).items() if k not in _OURS}
    arguments["strategy"] = _strategy(config, arguments)
    callbacks = build_callbacks(config.callbacks, validation, criterion, folder / "checkpoints")
    try:
        trainer = Trainer(
            **arguments,
            max_epochs=-1,
            default_root_dir=folder,
            plugins=[AtomicCheckpointIO()],
            logger=build_loggers(config.logger, folder),
            callbacks=list(callbacks),
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (MisconfigurationException, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        if "No supported gpu backend" in reason:
            reason = f"accelerator={arguments['accelerator']} is not there; set trainer=cpu"
        raise InputError(f"trainer: {reason}") from error
    # Lightning's handlers would speak to other ranks in the middle of whatever they do.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer


def build_callbacks(
    config: CallbacksConfig, validation: Sequence[Callback], criterion: Criterion, folder: Path
) -> Sequence[Callback]:
    """All callbacks, in the order in which they run; checkpoints run last.

    Args:
        config: Which ones.
        validation: Those of the task.
        criterion: What is better.
        folder: For the checkpoints.
    """
    # First: a validation, most of which the task's callbacks are, can be broken off from its start.
    callbacks: list[Callback] = [GracefulStop(folder.parent)]
    if config.ema_decay:
        # Before the task's, which must see the averaged weights.
        callbacks.append(MovingAverage(decay=config.ema_decay))
    callbacks += [*validation, Measure(), ContinuedLogs(), ProgressBar(), LastValidation()]
    if config.patience is not None:
        callbacks.append(Patience(criterion, config.patience))
    keep, interval = config.keep_last, config.save_interval
    return [
        *callbacks,
        *checkpoint_callbacks(folder, criterion, keep_last=keep, interval=interval),
    ]


def _strategy(config: RunConfig, arguments: dict[str, Any]) -> Strategy | str:
    if arguments["strategy"] == "fsdp":
        _refuse_unshardable(config)
        return ShardedStrategy()
    several = arguments["devices"] not in (1, "1") or arguments["num_nodes"] > 1
    return build_strategy(arguments["strategy"], several=several)


def _refuse_unshardable(config: RunConfig) -> None:
    """Refuse what cannot go with sharded weights.

    Raises:
        InputError: It is asked for.
    """
    layer_drop = config.model["layer_drop"]
    for asked, key, reason in (
        (config.callbacks.ema_decay, "callbacks.ema_decay", "it averages whole weights"),
        (layer_drop, "model.layer_drop", "all ranks put a layer together at the same time"),
    ):
        if asked:
            raise InputError(f"{key} does not go with trainer=fsdp: {reason}; set {key}=0")


def bound_by_epochs(
    trainer: Trainer,
    epochs: int | None,
    data: BatchModule,
    done: int = 0,
    before: dict[str, Any] | None = None,
) -> None:
    """Turn the bound in epochs into one in updates: the row of batches has no end.

    Args:
        trainer: To be bound.
        epochs: Passes through the corpus, those of the runs it resumes included; None: no bound.
        data: Whose row it is.
        done: Updates that the run has made before.
        before: What its loader said then, if it goes on.

    Raises:
        InputError: The length of an epoch is not known.
    """
    if epochs is None or epochs < 0:
        return
    row, shares = data.row, Shares(trainer.world_size, data.accumulation)
    if row.epoch_length is None:
        raise InputError(
            f"trainer.max_epochs={epochs}: a stream does not know how long an epoch is; set "
            "trainer.max_steps or trainer.max_time"
        )
    left = epochs * row.epoch_length - next_batch(before, done, row, shares)
    updates = done + max(0, math.ceil(left / shares.batches))
    if not 0 <= trainer.max_steps <= updates:
        trainer.fit_loop.epoch_loop.max_steps = updates


def end_of(trainer: Trainer, config: RunConfig) -> tuple[str, str]:
    """The key that has ended the training, and what it has come to.

    Where nothing tells it, the key is all that may have.
    """
    done, last = trainer.global_step, trainer.max_steps
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if 0 <= last <= done:
        key = "max_steps" if last == config.trainer["max_steps"] else "max_epochs"
        return (
            f"trainer.{key}",
            f"all {done} updates of trainer.{key}={config.trainer[key]} are done",
        )
    for callback in callbacks:
        if isinstance(callback, Patience) and callback.waited >= callback.patience:
            over = f"callbacks.patience={callback.patience} has ended training after update {done}"
            return "callbacks.patience", over
        if isinstance(callback, Timer) and (callback.time_remaining() or 0) <= 0:
            over = f"trainer.max_time={config.trainer['max_time']} is over after update {done}"
            return "trainer.max_time", over + (f" of {last}" if last >= 0 else "")
    keys = "trainer.max_steps, trainer.max_epochs, trainer.max_time or callbacks.patience"
    return keys, f"all {done} updates are done"


def _quieten_lightning() -> None:
    """Keep its advertisements, and its warnings about what is meant so, out of the log."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*smaller than the logging interval.*",
        ".*LeafSpec.*",
        # A bound in time, or the patience, that the run it goes on with had and this one has not.
        ".*when using `ckpt_path`, callbacks.*",
        "Experiment logs directory.*",
        "Checkpoint directory.*exists and is not empty.*",
        ".*in eval mode at the start of training.*",
        # What is logged is alike on all ranks.
        ".*sync_dist=True.*",
        # Nothing of ours changes it in place.
        ".*FSDP2-wrapped module.*view.*",
    ):
        warnings.filterwarnings("ignore", message=message)
