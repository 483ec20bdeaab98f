"""The run as plain, typed values: where Hydra ends.

It checks each value's type, and leaves its meaning to the dataclass that holds it.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from transformer.data.datamodule import DataConfig
from transformer.data.tokenizer import TokenizerConfig
from transformer.decoding.search import SearchConfig
from transformer.errors import InputError
from transformer.training.callbacks import CallbacksConfig
from transformer.training.loss import LossConfig
from transformer.training.optimizer import OptimizerConfig
from transformer.training.schedule import ScheduleConfig

T = TypeVar("T")


@dataclass(frozen=True)
class LoggerConfig:
    """Where metrics go.

    Attributes:
        csv: Write ``metrics.csv``.
        tensorboard: Write TensorBoard events under ``tensorboard/``.
    """

    csv: bool
    tensorboard: bool


@dataclass(frozen=True)
class RunConfig:
    """Everything a training run is made of.

    Attributes:
        seed: Of weights, dropout, batch order and subword sampling.
        checkpoint: File to go on from; null starts anew.
        keep_memory: Tell the allocator to keep freed memory (``memory.py``).
        data: Text and batches.
        tokenizer: Subwords.
        model: Fields of ``ModelConfig`` but those that the tokenizer decides.
        loss: The loss.
        optimizer: The optimiser.
        schedule: The learning rate.
        trainer: Arguments of ``pytorch_lightning.Trainer``.
        callbacks: Validation, averaging, stopping.
        logger: Where metrics go.
        decoding: The search that validates and tests.
        resolved: The same as the plain values of ``config.yaml``.
    """

    seed: int
    checkpoint: Path | None
    keep_memory: bool
    data: DataConfig
    tokenizer: TokenizerConfig
    model: Mapping[str, Any]
    loss: LossConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    trainer: Mapping[str, Any]
    callbacks: CallbacksConfig
    logger: LoggerConfig
    decoding: SearchConfig
    resolved: Mapping[str, Any]


def run_config(resolved: Mapping[str, Any]) -> RunConfig:
    """Turn the plain values of a composed config into typed ones.

    Raises:
        InputError: A key is missing or unknown, or a value has the wrong type.
    """
    checkpoint = resolved["checkpoint"]
    return RunConfig(
        seed=_typed(resolved["seed"], int, "seed"),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        keep_memory=_typed(resolved["keep_memory"], bool, "keep_memory"),
        data=typed(DataConfig, resolved["data"], "data"),
        tokenizer=typed(TokenizerConfig, resolved["tokenizer"], "tokenizer"),
        model=dict(resolved["model"]),
        loss=typed(LossConfig, resolved["loss"], "loss"),
        optimizer=typed(OptimizerConfig, resolved["optimizer"], "optimizer"),
        schedule=typed(ScheduleConfig, resolved["schedule"], "schedule"),
        trainer=dict(resolved["trainer"]),
        callbacks=typed(CallbacksConfig, resolved["callbacks"], "callbacks"),
        logger=typed(LoggerConfig, resolved["logger"], "logger"),
        decoding=typed(SearchConfig, resolved["decoding"], "decoding"),
        resolved=resolved,
    )


def typed(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a dataclass from plain values.

    Raises:
        InputError: A key is missing or unknown, or a value has the wrong type.
    """
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for unknown in values.keys() - names:
        raise InputError(f"{where}.{unknown} is not a setting of {where}")
    return kind(
        **{name: _typed(value, hints[name], f"{where}.{name}") for name, value in values.items()}
    )


def _typed(value: Any, hint: Any, where: str) -> Any:
    """The value as its annotation says: int, float, bool, str, literal, tuple, or a union."""
    origin = get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        for option in get_args(hint):
            try:
                return _typed(value, option, where)
            except InputError:
                continue
    elif origin is tuple and isinstance(value, list | tuple):
        items = get_args(hint)
        if items[-1] is Ellipsis:
            items = (items[0],) * len(value)
        if len(items) == len(value):
            return tuple(_typed(v, i, where) for v, i in zip(value, items, strict=True))
    elif origin is Literal and value in get_args(hint):
        return value
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise InputError(f"{where}={value!r} must be {_words(hint)}")


def _words(hint: Any) -> str:
    """How to say an annotation to the user."""
    origin = get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_words(option) for option in get_args(hint))
    if origin is Literal:
        return " or ".join(str(option) for option in get_args(hint))
    if origin is tuple:
        return "a list"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(hint, "null" if hint is type(None) else str(hint))
