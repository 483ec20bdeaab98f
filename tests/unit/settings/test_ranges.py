"""A number outside of the range of its field is refused, and named by its key."""

import math
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from transformer import settings
from transformer.common.errors import InputError
from transformer.common.schema import Range, typed


def _ranges(hint: Any) -> Iterator[tuple[type, Range]]:
    """The numbers of an annotation, alone or in a union or list, with their ranges."""
    for option in get_args(hint):
        yield from _ranges(option)
    for allowed in getattr(hint, "__metadata__", ()):
        if isinstance(allowed, Range):
            yield hint.__origin__, allowed


def _outside(kind: type, allowed: Range) -> Iterator[float]:
    """The nearest numbers of this kind below and above the range."""
    step = 1 if kind is int else 1e-6
    for bound, value in (
        (allowed.least, allowed.least - step),
        (allowed.most, allowed.most + step),
        (allowed.above, allowed.above),
        (allowed.below, allowed.below),
    ):
        if math.isfinite(bound):
            yield kind(value)


FIELDS = [
    (kind, field.name, get_type_hints(kind, include_extras=True)[field.name])
    for module in pkgutil.iter_modules(settings.__path__, f"{settings.__name__}.")
    for kind in vars(import_module(module.name)).values()
    if is_dataclass(kind) and kind.__module__ == module.name
    for field in fields(kind)
]
CASES = [
    pytest.param(kind, name, value, id=f"{kind.__name__}.{name}={value}")
    for kind, name, hint in FIELDS
    for number, allowed in _ranges(hint)
    for value in _outside(number, allowed)
]
UNBOUNDED = {
    "AttentionConfig.alignment_threshold",
    "AverageConfig.last",
    "CallbacksConfig.keep_last",
    "CallbacksConfig.samples",
    "CompareConfig.frequencies",
    "CompareConfig.lengths",
    "ComparisonKeys.frequencies",
    "ComparisonKeys.lengths",
    "DataConfig.seed",
    "EvaluateConfig.alignment_threshold",
    "ExportConfig.max_bleu_loss",
    "HeadsConfig.prune",
    "LossConfig.alignment_head",
    "LossConfig.alignment_layer",
    "ModelConfig.pattern_seed",
    "OptimizerConfig.betas",
    "PushConfig.max_bleu_loss",
    "RunConfig.seed",
    "ScheduleConfig.total",
    "TrainerConfig.devices",
    "TrainerConfig.limit_val_batches",
    "TrainerConfig.max_time",
    "TranslateConfig.alignment_threshold",
    "TranslatorConfig.alignment_threshold",
    "TuneConfig.beam_sizes",
    "TuneConfig.length_penalties",
}
"""Numbers without a range: any is right, or the limits are checked with other settings."""


@pytest.mark.parametrize(("kind", "key", "value"), CASES)
def test_a_number_outside_of_its_range_is_refused(kind: type, key: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"\b{key}=.* must be "):
        typed(kind, _required(kind) | {key: value}, "x")


def _is_free_number(hint: Any) -> bool:
    """Whether an annotation has a number without a range."""
    if hasattr(hint, "__metadata__"):
        return False
    return hint in (int, float) or any(map(_is_free_number, get_args(hint)))


def test_every_other_number_is_named() -> None:
    free = {f"{kind.__name__}.{name}" for kind, name, hint in FIELDS if _is_free_number(hint)}
    assert free == UNBOUNDED


def _required(kind: Any) -> dict[str, Any]:
    """Texts for the fields without a default."""
    hints = get_type_hints(kind)
    return {
        field.name: ["a", "b"] if get_origin(hints[field.name]) is Sequence else "a"
        for field in fields(kind)
        if field.default is field.default_factory is MISSING
    }
