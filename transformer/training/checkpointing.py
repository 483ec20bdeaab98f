"""Checkpoints in training: the callbacks that write them, and the state to resume from.

The file itself is read and written by checkpoint/checkpoint.py; docs/checkpoint.md lists its keys.
A checkpoint has the state after a whole update. The number of updates determines the batches and
the learning rates that follow.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, NoReturn

import pytorch_lightning
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import CheckpointIO
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.checkpoint.archive import SHARDS, write_archive
from transformer.checkpoint.checkpoint import (
    PORTABLE,
    find_last,
    read_parts,
    read_payload,
    write_payload,
)
from transformer.checkpoint.run_directory import (
    LAST,
    OUTDATED,
    TUNED,
    mark_unfinished,
    newest_checkpoints,
)
from transformer.checkpoint.sharded import SUFFIX, delete_unnamed, part_folder_of
from transformer.common.errors import (
    AnotherRankFailed,
    InputError,
    errors_name,
    raise_objections,
)
from transformer.common.files import remove_parts
from transformer.common.schema import Range, typed, typed_value
from transformer.data.datamodules.base import BatchModule
from transformer.training.lightning_internals import (
    begin_after_update,
    loop_state,
    set_max_steps,
    validate_now,
)
from transformer.training.model_selection import ModelSelection

logger = logging.getLogger(__name__)

Count = Annotated[int, Range(0)]

_COUNTERS = ("global_step", "epoch", "metrics_rows", "metrics_steps")
"""Keys of numbers; a run without a log of metrics has not the last two."""

_REQUIRED = ("global_step", "optimizer_states", "loops", "callbacks", "recovery", "measured")

_RUN_FILES = (f"{LAST}.ckpt", "best.ckpt", "step-*.ckpt")

RESUME_KEYS = (
    *_COUNTERS,
    "recovery",
    "measured",
    "callbacks",
    "records",
    PORTABLE,
    "state_dict",
    "optimizer_states",
    "loops",
    "current_model_state",
    "averaging_state",
)
"""Keys of a file for a resumed run; the schedule follows from the number of updates."""


@dataclass
class _Recovery:
    """State of the divergence detector, and the learning rate of the config."""

    losses: Sequence[float]
    in_a_row: Count
    skipped: Count
    returned: Count
    lr: float


@dataclass
class _Measured:
    """Sums of the metrics since they were last logged."""

    loss: float
    alignment: tuple[float, float]
    consistency: float | None
    learned: Count
    counted: tuple[int, int]
    other_sums: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass
class _Loader:
    """Position in the training text."""

    identity: Mapping[str, Any]
    row: Mapping[str, Any] | None
    epoch_length: Count | None
    ranks: Annotated[int, Range(1)]
    accumulation: Annotated[int, Range(1)]
    first: Count
    since: Count


@dataclass
class _BestState:
    best: tuple[float, float] | None


@dataclass
class _LastState:
    validates: bool


@dataclass
class _PatienceState:
    best: tuple[float, float] | None
    waited: Count


@dataclass
class _ObjectiveState:
    metric: str
    best: float | None


_CALLBACKS = {
    "BestCheckpoint": _BestState,
    "LastCheckpoint": _LastState,
    "Patience": _PatienceState,
    "Objective": _ObjectiveState,
}
"""State of callbacks, by the names of their classes."""


class SavedCallback(Callback):
    """A callback that keeps the attributes of ``_CALLBACKS`` in the checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        saved = fields(_CALLBACKS[type(self).__name__])
        return {field.name: getattr(self, field.name) for field in saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


class LastCheckpoint(SavedCallback, Checkpoint):
    """Writes ``last.ckpt``: at the start, at an interval, before every validation, at the end.

    It has the state after a whole update, and whether a validation follows. With ``validates``, a
    new run also validates before its first update. Lightning's ``ModelCheckpoint`` does not record
    whether a validation is due, and ends the run at the first file that cannot be written.
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
            self._max_steps = trainer.max_steps
            self._should_stop = trainer.should_stop
            set_max_steps(trainer, -1)
            trainer.should_stop = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Save a new run, or a run after a return; run a validation that a stop prevented."""
        begin_after_update(trainer)
        unused = None
        if trainer.is_global_zero:
            remove_parts(self.path.parent, *_RUN_FILES)
            if not trainer.should_stop:
                run = self.path.parent.parent
                mark_unfinished(run)
                set_aside_outdated(run)
                unused = set_aside_unused(self.path.parent, trainer.ckpt_path)
        self._saved = (trainer.global_step, self.validates)
        is_new = not trainer.strategy.broadcast(self.path.exists())
        if is_new or pl_module.detector.returned:
            error = self._save(trainer)
            if error and is_new:
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
        if self._saved != (trainer.global_step, False):
            error = self._save(trainer)
            if error:
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

    def improves(self, trainer: Trainer) -> bool:
        """Whether a validation that has just ended is the best so far."""
        return self.selection.better(self.selection.values(trainer.callback_metrics), self.best)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.improves(trainer):
            former = self.best
            # The file has the best values, so that they are set before it is written.
            self.best = self.selection.values(trainer.callback_metrics)
            if save(trainer, self.path):
                self.best = former


class RecentCheckpoints(Checkpoint):
    """Keeps the weights, not their average, of the last ``keep`` validations; below 0 of all."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep

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


def save(trainer: Trainer, path: Path, *, weights_only: bool = False) -> InputError | None:
    """Write a checkpoint; returns the error on all ranks, None if it was written."""
    trainer.save_checkpoint(path, weights_only)
    writer: Any = trainer.strategy.checkpoint_io
    writer.wait()
    # Only rank 0 writes; all ranks must act alike.
    message = trainer.strategy.broadcast(str(writer.error or ""))
    return InputError(message) if message else None


def _raise_on_rank(error: InputError, trainer: Trainer) -> NoReturn:
    """Raise the error on rank 0, which reports it; the other ranks raise a silent error."""
    raise error if trainer.is_global_zero else AnotherRankFailed(str(error))


class Resumable:
    """A checkpoint to resume from, which has been read and checked; its content is taken once."""

    def __init__(self, file: Path, payload: dict[str, Any]) -> None:
        self.file = file
        self._payload: dict[str, Any] | None = payload

    @property
    def payload(self) -> dict[str, Any]:
        """The content; AssertionError once it is taken."""
        assert self._payload is not None
        return self._payload

    def take(self) -> dict[str, Any]:
        """Hand the content to its last reader, so that its memory is freed after that."""
        payload = self.payload
        self._payload = None
        return payload


class AtomicCheckpointIO(CheckpointIO):
    """Writes and reads checkpoints for Lightning's trainer.

    Lightning's own class keeps no previous file, and verifies nothing that it reads.

    Attributes:
        error: Of the last write; it is not raised, because the other ranks wait for this one.
        pending: A write in the background, which gives its error or None (fsdp.py).
        read: A checkpoint that was read before, and is not read again when training begins.
    """

    def __init__(self, read: Resumable | None = None) -> None:
        self.error: InputError | None = None
        self.pending: Future[InputError | None] | None = None
        self.read = read

    def wait(self) -> None:
        """Wait for the end of a write in the background."""
        if self.pending is not None:
            pending = self.pending
            self.pending = None
            self.error = pending.result()

    teardown = wait

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        self.error = None
        try:
            write_payload(checkpoint, Path(path))
        except InputError as error:
            self.error = error
            logger.error("%s; the old checkpoint is kept, and training continues", error)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_parts(self.load_index(Path(path)), Path(path))

    def load_index(self, path: Path) -> dict[str, Any]:
        """Load a checkpoint without tensors that lie in parts of several ranks."""
        if self.read is None:
            payload = read_payload(path, parts=False)
            check_saved_state(payload, path)
        else:
            payload = self.read.take()
            self.read = None
        loaded = {key: payload[key] for key in (*RESUME_KEYS, SHARDS) if key in payload}
        # With another version, Lightning would migrate the content.
        loaded["pytorch-lightning_version"] = pytorch_lightning.__version__
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def set_aside_outdated(run: Path) -> None:
    """Rename ``tuned.ckpt`` and what was measured: resumed training may find a better model."""
    names = [
        f"checkpoints/{TUNED}.ckpt",
        "stress.json",
        "failures.json",
        "*.failures.json",
        "*.hyp",
    ]
    for split in ("test", "validation"):
        names += [f"{split}.json", f"{split}_*.json"]
    names += [f"{file.stem}.json" for file in run.glob("*.hyp")]
    files = {file for name in names for file in run.glob(name)}
    for file in sorted(files):
        if not file.name.startswith(f"{OUTDATED}-"):
            aside = _set_aside(file, OUTDATED)
            logger.info("%s is older than this training; it is kept as %s", file, aside.name)


def set_aside_unused(folder: Path, resume: str | PathLike[str] | None) -> Path | None:
    """Rename ``last.ckpt``, and return its name, if training resumes from another file."""
    last = folder / f"{LAST}.ckpt"
    if resume is None or Path(resume).resolve() == last.resolve() or not last.exists():
        return None
    aside = _set_aside(last, "unused")
    logger.warning("resuming from %s: %s is not used, and kept as %s", resume, last, aside.name)
    return aside


def _set_aside(file: Path, reason: str) -> Path:
    """Rename a file with a reason and the time at which it was written."""
    written = datetime.fromtimestamp(file.stat().st_mtime)
    aside = file.with_name(f"{reason}-{file.stem}-{written:%Y-%m-%d_%H-%M-%S}{file.suffix}")
    return file.rename(aside)


def consolidate(folder: Path) -> None:
    """Make one file of each checkpoint of a folder that has whole parts of several ranks."""
    if not any(folder.glob(f"*{SUFFIX}")):
        return
    for file in sorted(folder.glob("*.ckpt")):
        if not part_folder_of(file):
            continue
        try:
            payload = read_parts(read_payload(file, parts=False), file, scratch=folder)
        except InputError as error:
            logger.warning("%s; it stays as it is", error)
            continue
        # Not write_payload: this is no newer checkpoint, so that previous.ckpt stays.
        write_archive(payload, file)
    delete_unnamed(folder)


def find_resumable(path: Path, *, tensors: bool = True) -> Resumable:
    """Find and read the checkpoint to resume from (``find_last``); InputError if there is none."""
    file, payload = find_last(path, tensors=tensors)
    if "optimizer_states" not in payload:
        raise InputError(
            f"{file} has only weights; resume from a run directory, best.ckpt or last.ckpt"
        )
    check_saved_state(payload, file)
    return Resumable(file, payload)


def check_saved_state(payload: Mapping[str, Any], file: Path) -> None:
    """Raise InputError unless a checkpoint has the training state of a run."""
    with errors_name(file):
        raise_objections(
            f"{key} is missing; training cannot resume" for key in _REQUIRED if key not in payload
        )
        for key in _COUNTERS:
            if key in payload:
                typed_value(payload[key], Count, f"training.{key}")
        typed(_Recovery, payload["recovery"], "recovery")
        typed(_Measured, payload["measured"], "measured")
        typed_value(payload.get("records", {}), Mapping[str, str | None], "records")
        callbacks = typed_value(payload["callbacks"], Mapping[str, Any], "callbacks")
        for name, kind in _CALLBACKS.items():
            if name in callbacks:
                typed(kind, callbacks[name], f"callbacks.{name}")
        loader = loader_state(payload)
        if loader is not None:
            typed(_Loader, loader, "loops")


def loader_state(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state of the data loader, which Lightning does not always restore; None for none."""
    try:
        [state] = payload["loops"]["fit_loop"]["state_dict"].get("combined_loader", [None])
    except (LookupError, TypeError, ValueError, AttributeError):
        state = ()  # no mapping: typed_value raises InputError
    return typed_value(state, Mapping[str, Any] | None, "loops")


def restore_progress(checkpoint: dict[str, Any], trainer: Trainer, module: LightningModule) -> None:
    """Change the state before Lightning restores it, so that it resumes after the last update."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    averages = any(type(callback).__name__ == "MovingAverage" for callback in callbacks)
    if not averages and "current_model_state" in checkpoint:
        # Without callbacks.ema_decay, training resumes with the weights and not their average.
        checkpoint["state_dict"] = checkpoint.pop("current_model_state")
    for key in ("state_dict", "current_model_state"):
        if key in checkpoint:
            _check_shapes(checkpoint[key], module)
    data = trainer.datamodule  # type: ignore[attr-defined]
    if isinstance(data, BatchModule):
        data.resume_from(loader_state(checkpoint))
    checkpoint["loops"] = loop_state(trainer, checkpoint["global_step"])


def _check_shapes(weights: dict[str, Any], module: LightningModule) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    saved = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | saved.keys()):
        if expected.get(name) != saved.get(name):
            raise InputError(
                f"the model of the config does not fit the checkpoint: {name} is "
                f"{expected.get(name, 'missing')} and not {saved.get(name, 'missing')}; a run "
                "resumes with the model.… that it started with"
            )


def optimizer_state(states: Any, optimizer: Optimizer, *, copies: bool = True) -> dict[str, Any]:
    """Join the moments of a checkpoint, which are checked, with the settings of a new optimizer.

    ``copies``: whether the moments are copied. torch keeps the tensors that it is given, which are
    mappings of a file.
    """
    groups = optimizer.param_groups
    expected = [_state_shapes(group, weight) for group in groups for weight in group["params"]]
    try:
        [saved] = states
        moments = dict(saved["state"])
        numbers = [group["params"] for group in saved["param_groups"]]
        whole = all(
            number >= 0
            and {name: tuple(value.shape) for name, value in saved_one.items()} == expected[number]
            for number, saved_one in moments.items()
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        whole = False
    fresh = optimizer.state_dict()
    if not whole or numbers != [group["params"] for group in fresh["param_groups"]]:
        raise InputError(
            "the state of the optimizer in the checkpoint does not fit the weights, or another "
            "optimizer.name wrote it; resume with that, or with another checkpoint, or begin a run "
            "with its weights, finetune_from=CHECKPOINT"
        )
    if copies:
        moments = {
            number: {name: tensor.clone() for name, tensor in tensors.items()}
            for number, tensors in moments.items()
        }
    return {"state": moments, "param_groups": fresh["param_groups"]}


def _state_shapes(group: Mapping[str, Any], weight: Tensor) -> dict[str, tuple[int, ...]]:
    """The shapes of the state of a weight: of Muon for a matrix, else of Adam."""
    shape = tuple(weight.shape)
    if group.get("matrices_per_weight"):
        return {"momentum": shape}
    return {"step": (), "exp_avg": shape, "exp_avg_sq": shape}


def schedule_state(schedule: LambdaLR, done: int, scale: float) -> dict[str, Any]:
    """The state of a schedule after ``done`` updates, its rates times a scale."""
    base = [lr * scale for lr in schedule.base_lrs]
    rates = zip(base, schedule.lr_lambdas, strict=True)
    return schedule.state_dict() | {
        "base_lrs": base,
        "last_epoch": done,
        "_step_count": done + 1,
        "_last_lr": [lr * factor(done) for lr, factor in rates],
    }
