"""Mean weights (Popel and Bojar 2018, section 4.10; Vaswani et al. 2017, section 6.1)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer.checkpoint.checkpoint import (
    PORTABLE,
    portable_part,
    read_merged,
    require_translation,
)
from transformer.common.errors import InputError


def recent_checkpoints(folder: Path, count: int | None) -> list[Path]:
    """The newest ``step-*.ckpt``, oldest first; None: at most five; InputError for fewer."""
    found = newest_checkpoints(folder)
    count = max(1, min(5, len(found))) if count is None else count
    if not 1 <= count <= len(found):
        raise InputError(
            f"last={count} must be at least 1 and at most {len(found)}, the step-*.ckpt of "
            f"{folder}/checkpoints, one per validation; for more train with a smaller "
            "trainer.val_check_interval or a larger callbacks.keep_last"
        )
    return found[-count:]


def newest_checkpoints(folder: Path) -> list[Path]:
    """Every ``step-*.ckpt`` that the run directory keeps, oldest first."""
    return sorted((folder / "checkpoints").glob("step-*.ckpt"))


def average_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """The payload of mean weights, summed in float64; InputError for different models."""
    first = read_merged(paths[0])
    require_translation(first, paths[0])
    sums = {name: tensor.double() for name, tensor in first["state_dict"].items()}
    for path in paths[1:]:
        payload = read_merged(path)
        weights = payload["state_dict"]
        models = [portable_part(one).config.model for one in (first, payload)]
        shapes = [{n: w.shape for n, w in each.items()} for each in (weights, sums)]
        if models[0] != models[1] or shapes[0] != shapes[1]:
            raise InputError(f"{path} has another model than {paths[0]}; average one run's only")
        for name, tensor in weights.items():
            sums[name] += tensor
    weights = {
        name: (total / len(paths)).to(first["state_dict"][name].dtype)
        for name, total in sums.items()
    }
    # Tied names share one tensor again, so that the file has it once.
    by_storage: dict[int, str] = {}
    for name, tensor in first["state_dict"].items():
        weights[name] = weights[by_storage.setdefault(tensor.data_ptr(), name)]
    return {"state_dict": weights, PORTABLE: first[PORTABLE]}
