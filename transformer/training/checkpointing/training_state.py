"""The state of a checkpoint, after whole updates, whose number decides batches and rates."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.checkpoint.checkpoint import PORTABLE, find_last
from transformer.common.errors import InputError, errors_name, raise_objections
from transformer.common.schema import Range, typed, typed_value
from transformer.data.datamodules.base import BatchModule
from transformer.training.lightning_internals import loop_state

Count = Annotated[int, Range(0)]


def _state(**hints: Any) -> type[Any]:
    """A dataclass of plain values, which ``typed`` checks."""
    return make_dataclass("State", hints.items())


_COUNTERS = ("global_step", "epoch", "metrics_rows", "metrics_steps")
"""Values at the root of the file; the last three may be missing."""

_RECOVERY = _state(losses=Sequence[float], in_a_row=Count, skipped=Count, returned=Count, lr=float)

_MEASURED = _state(
    loss=float,
    alignment=tuple[float, float],
    consistency=float | None,
    learned=Count,
    counted=tuple[int, int],
)

_CALLBACKS = {
    "BestCheckpoint": _state(best=tuple[float, float] | None),
    "LastCheckpoint": _state(validates=bool),
    "Patience": _state(best=tuple[float, float] | None, waited=Count),
    "Objective": _state(metric=str, best=float | None),
}


class SavedCallback(Callback):
    """A callback whose attributes of ``_CALLBACKS`` are in the checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        saved = fields(_CALLBACKS[type(self).__name__])
        return {field.name: getattr(self, field.name) for field in saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


_LOADER = _state(
    identity=Mapping[str, Any],
    row=Mapping[str, Any] | None,
    epoch_length=Count | None,
    ranks=Annotated[int, Range(1)],
    accumulation=Annotated[int, Range(1)],
    first=Count,
    since=Count,
)

LIGHTNING_READS = (
    *_COUNTERS,
    *("recovery", "measured", "callbacks", "records"),
    *(PORTABLE, "state_dict", "optimizer_states", "loops"),
    *("current_model_state", "averaging_state"),
)
"""Keys of a file for a resumed run; the schedule follows from the number of updates."""


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
        payload, self._payload = self.payload, None
        return payload


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
        required = ("global_step", "optimizer_states", "loops", "callbacks", "recovery", "measured")
        raise_objections(
            f"{key} is missing; training cannot resume" for key in required if key not in payload
        )
        counters = {key: payload[key] for key in _COUNTERS if key in payload}
        typed(_state(**dict.fromkeys(counters, Count)), counters, "training")
        typed(_RECOVERY, payload["recovery"], "recovery")
        typed(_MEASURED, payload["measured"], "measured")
        typed_value(payload.get("records", {}), Mapping[str, str | None], "records")
        callbacks = typed_value(payload["callbacks"], Mapping[str, Any], "callbacks")
        for name, kind in _CALLBACKS.items():
            if name in callbacks:
                typed(kind, callbacks[name], f"callbacks.{name}")
        if (loader := loader_state(payload)) is not None:
            typed(_LOADER, loader, "loops")


def loader_state(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """The state of the data loader, which Lightning does not always restore; None for none."""
    try:
        [state] = payload["loops"]["fit_loop"]["state_dict"].get("combined_loader", [None])
    except (LookupError, TypeError, ValueError, AttributeError):
        state = ()
    return typed_value(state, Mapping[str, Any] | None, "loops")


def optimizer_state(states: Any, optimizer: Optimizer, *, copies: bool = True) -> dict[str, Any]:
    """Join the moments of a checkpoint, which are checked, with the settings of a new optimizer.

    ``copies``: whether the moments are copied. torch keeps the tensors that it is given, which are
    mappings of a file.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    try:
        [saved] = states
        moments = dict(saved["state"])
        numbers = [group["params"] for group in saved["param_groups"]]
        whole = all(_are_moments(moments[n], weights[n]) and n >= 0 for n in moments)
    except (LookupError, TypeError, ValueError, AttributeError):
        whole = False
    fresh = optimizer.state_dict()
    if not whole or numbers != [group["params"] for group in fresh["param_groups"]]:
        raise InputError(
            "the moments of the optimizer in the checkpoint do not fit the weights; resume with "
            "another checkpoint, or begin a run with its weights, finetune_from=CHECKPOINT"
        )
    if copies:
        moments = {n: {k: t.clone() for k, t in one.items()} for n, one in moments.items()}
    return {"state": moments, "param_groups": fresh["param_groups"]}


def _are_moments(moments: Mapping[str, Any], weight: Tensor) -> bool:
    shapes = {"step": (), "exp_avg": tuple(weight.shape), "exp_avg_sq": tuple(weight.shape)}
    return {name: tuple(tensor.shape) for name, tensor in moments.items()} == shapes


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


def restore_progress(checkpoint: dict[str, Any], trainer: Trainer, module: LightningModule) -> None:
    """Change the state before Lightning restores it, so that it resumes after the last update."""
    if not any(type(c).__name__ == "MovingAverage" for c in trainer.callbacks):  # type: ignore[attr-defined]
        # Without callbacks.ema_decay, training resumes with the weights and not their average.
        checkpoint["state_dict"] = checkpoint.pop("current_model_state", checkpoint["state_dict"])
    for part in ("state_dict", "current_model_state"):
        _check_shapes(checkpoint.get(part, checkpoint["state_dict"]), module)
    done = checkpoint["global_step"]
    if isinstance(data := trainer.datamodule, BatchModule):  # type: ignore[attr-defined]
        data.resume_from(loader_state(checkpoint))
    checkpoint["loops"] = loop_state(trainer, done)


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
