"""What a checkpoint must hold of training, so that a run can go on from it.

Lightning and torch take over what they find; so what they get is checked first, or made anew. It
does not know what the model is (model/checkpoint/validation.py), nor what a stream remembers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.common.errors import InputError, errors_name
from transformer.common.schema import typed_value
from transformer.model.checkpoint.checkpoint import PORTABLE, find_last

_REQUIRED = ("global_step", "optimizer_states", "loops", "callbacks")
_SCHEMA: dict[str, Any] = {
    "epoch": int,
    "global_step": int,
    "metrics_rows": int,
    "metrics_steps": int,
    "recovery": {
        "losses": Sequence[float],
        **dict.fromkeys(("in_a_row", "skipped", "returned"), int),
        "lr": float,
    },
    "measured": {
        "loss": float,
        "alignment": tuple[float, float],
        "consistency": float | None,
        "learnt": int,
        "counted": tuple[int, int],
    },
    "callbacks": {
        "BestCheckpoint": {"score": float | None},
        "LastCheckpoint": {"validates": bool},
        "Patience": {"score": float | None, "waited": int},
        "Objective": {"metric": str, "best": float | None},
        "MovingAverage": {"latest_update_step": int},
    },
}
"""Of each value its kind. What is not there has not been written by this run, or by its version."""

_LOADER: dict[str, Any] = {
    "identity": {},
    "epoch_length": int | None,
    **dict.fromkeys(("ranks", "accumulation", "first", "since"), int),
}
_STREAM: dict[str, Any] = {
    "first": int,
    "shards": str,
    "position": {
        **dict.fromkeys(("epoch", "buffer", "shard"), int),
        "place": {"row": int, "offsets": Sequence[int]},
    },
}
"""Where a stream stands (``StreamedBatches.state_dict``)."""

LIGHTNING_READS = (
    *_SCHEMA,
    *(PORTABLE, "state_dict", "optimizer_states", "loops"),
    *("current_model_state", "averaging_state"),
)
"""What a resumed run is given of a file; the schedule follows from the number of updates."""


def find_resumable(path: Path) -> tuple[Path, dict[str, Any]]:
    """The checkpoint to go on from, and all that it holds (``find_last``).

    Raises:
        InputError: There is none that training can go on from.
    """
    file, payload = find_last(path)
    if "optimizer_states" not in payload:
        raise InputError(
            f"{file} holds weights alone; training goes on from a run directory, best.ckpt or "
            "last.ckpt"
        )
    check_saved_state(payload, file)
    return file, payload


def check_saved_state(payload: Mapping[str, Any], file: Path) -> None:
    """Refuse what no training writes.

    Raises:
        InputError: A value is missing, or of the wrong type or range.
    """
    with errors_name(file):
        for key in _REQUIRED:
            if key not in payload:
                raise InputError(f"{key} is missing; training cannot go on from it")
        _check(payload, _SCHEMA, "")
        loader = loader_state(payload)
        if loader is not None:
            _check(loader, _LOADER, "loops", whole=True)
            if min(loader["ranks"], loader["accumulation"]) < 1:
                raise InputError("loops.ranks and loops.accumulation must be at least 1")
            if loader.get("row") is not None:
                _check(loader["row"], _STREAM, "loops.row", whole=True)


def loader_state(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the loader of the run said of the batches it has dealt out; None of older versions.

    Lightning hands it back only where it takes an epoch for unfinished.

    Raises:
        InputError: It is laid out as no run writes it.
    """
    if payload.get("recovery") is None:
        return None
    try:
        [state] = payload["loops"]["fit_loop"]["state_dict"].get("combined_loader", [None])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError("loops holds no state of the data loader") from error
    if not isinstance(state, dict | None):
        raise InputError("loops holds no state of the data loader")
    return state


def optimizer_state(states: Any, optimizer: Optimizer) -> dict[str, Any]:
    """The state of an optimiser: moments of a checkpoint, and all else as the run has it.

    Args:
        states: ``optimizer_states`` of the checkpoint.
        optimizer: That of the run, as it begins.

    Raises:
        InputError: The moments are not those of the weights.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    try:
        [saved] = states
        moments = dict(saved["state"])
        numbers = [group["params"] for group in saved["param_groups"]]
        whole = all(_are_moments(moments[n], weights[n]) and n >= 0 for n in moments)
    except (LookupError, TypeError, ValueError, AttributeError):
        whole = False
    begun = optimizer.state_dict()
    if not whole or numbers != [group["params"] for group in begun["param_groups"]]:
        raise InputError(
            "the moments of the optimiser in the checkpoint do not fit the weights; go on from "
            "another checkpoint, or begin a run with its weights, finetune_from=CHECKPOINT"
        )
    return {"state": moments, "param_groups": begun["param_groups"]}


def _are_moments(moments: Mapping[str, Any], weight: Tensor) -> bool:
    shapes = {"step": (), "exp_avg": tuple(weight.shape), "exp_avg_sq": tuple(weight.shape)}
    return {name: tuple(tensor.shape) for name, tensor in moments.items()} == shapes


def schedule_state(schedule: LambdaLR, done: int, scale: float) -> dict[str, Any]:
    """The state of a schedule after so many updates, its rates times a scale."""
    base = [lr * scale for lr in schedule.base_lrs]
    rates = zip(base, schedule.lr_lambdas, strict=True)
    return schedule.state_dict() | {
        "base_lrs": base,
        "last_epoch": done,
        "_step_count": done + 1,
        "_last_lr": [lr * factor(done) for lr, factor in rates],
    }


def _check(values: Any, schema: Mapping[str, Any], where: str, *, whole: bool = False) -> None:
    """Refuse a value of another kind than the schema has, and a count below 0.

    Args:
        values: To be checked.
        schema: The kind of each value, by its key.
        where: What an error calls them.
        whole: Whether every key must be there.

    Raises:
        InputError: There is one.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must be a mapping, {{KEY: VALUE}}")
    for key, hint in schema.items():
        name, value = f"{where}.{key}" if where else key, values.get(key)
        if key not in values and whole:
            raise InputError(f"{name} is missing")
        if key not in values:
            continue
        if isinstance(hint, Mapping):
            _check(value, hint, name, whole=whole)
        else:
            typed_value(value, hint, name)
            numbers = value if isinstance(value, list | tuple) else [value]
            if any(type(number) is int and number < 0 for number in numbers):
                raise InputError(f"{name}={value} must be at least 0")
