"""Checkpoint averaging (Popel and Bojar 2018, section 4.10; Vaswani et al. 2017, section 6.1)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Size, Tensor

from transformer.checkpoint.checkpoint import (
    PORTABLE,
    portable_part,
    read_merged,
    require_translation,
)
from transformer.checkpoint.run_directory import newest_checkpoints
from transformer.common.errors import InputError
from transformer.settings.model import other_weights


def recent_checkpoints(folder: Path, count: int | None) -> list[Path]:
    """The ``count`` newest ``step-*.ckpt``, oldest first; None: at most five.

    Raises InputError if the run has fewer.
    """
    files = newest_checkpoints(folder)
    if count is None:
        count = max(1, min(5, len(files)))
    if not 1 <= count <= len(files):
        raise InputError(
            f"last={count} must be at least 1 and at most {len(files)}, the step-*.ckpt of "
            f"{folder}/checkpoints, one per validation; for more train with a smaller "
            "trainer.val_check_interval or a larger callbacks.keep_last"
        )
    return files[-count:]


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """The payload of mean weights, summed in float64, with the settings of the last checkpoint.

    Raises InputError for different models. A resumed run may have changed what is no weight, such
    as dropout.
    """
    first = read_merged(paths[0])
    payload = first
    require_translation(first, paths[0])
    model = portable_part(first).config.model
    sums = {name: tensor.double() for name, tensor in first["state_dict"].items()}
    for path in paths[1:]:
        payload = read_merged(path)
        weights = payload["state_dict"]
        other = other_weights(model, portable_part(payload).config.model)
        if other or _shapes(weights) != _shapes(sums):
            raise InputError(f"{path} has another model than {paths[0]}; average one run's only")
        for name, tensor in weights.items():
            sums[name] += tensor
    means: dict[str, Tensor] = {}
    # Tied names share one tensor again, so that the file has it once.
    tied: dict[int, Tensor] = {}
    for name, tensor in first["state_dict"].items():
        mean = (sums[name] / len(paths)).to(tensor.dtype)
        means[name] = tied.setdefault(tensor.data_ptr(), mean)
    return {"state_dict": means, PORTABLE: payload[PORTABLE]}


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, Size]:
    return {name: weight.shape for name, weight in weights.items()}
