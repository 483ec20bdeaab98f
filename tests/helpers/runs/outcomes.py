"""What runs have left, compared to the last bit."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_TIMES = ("train/tokens_per_second",)
"""Metrics that no two runs have in common."""


def outcome(folder: Path) -> dict[str, Any]:
    """All that two runs must have in common: every value of the last checkpoint, and the rows."""
    payload = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    best = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    with open(folder / "metrics.csv", newline="") as file:
        rows = [
            {name: value for name, value in row.items() if name not in _TIMES}
            for row in csv.DictReader(file)
        ]
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    del payload["transformer"]["config"]["checkpoint"]
    # What Lightning counts, and nothing of ours reads.
    payload["loops"] = payload["epoch"] = None
    return {
        "last": payload,
        "best": (best["global_step"], best["state_dict"]),
        "rows": rows,
        "files": [name for name in names if name != "previous.ckpt"],
    }


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two nested values differ; tensors must be equal in every bit."""
    if type(one) is not type(other):
        return [f"{where}: {one!r} != {other!r}"]
    if isinstance(one, Mapping):
        keys = [*one, *(key for key in other if key not in one)]
        return [
            line
            for key in keys
            for line in (
                differences(one[key], other[key], f"{where}/{key}")
                if key in one and key in other
                else [f"{where}/{key} is missing"]
            )
        ]
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{where}: {len(one)} != {len(other)} items"]
        pairs = enumerate(zip(one, other, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{where}/{i}")]
    same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if same else [f"{where}: {one!r} != {other!r}"]


def said(folder: Path) -> str:
    """What a run of `tests.helpers.runs.processes` has written on its streams."""
    return (folder / "said").read_text()


def assert_equals_whole(home: Path, folder: Path) -> None:
    """Assert that a run ended as the one in ``home/whole`` and left nothing half-written."""
    assert differences(outcome(home / "whole"), outcome(folder)) == [], said(folder)
    assert "Traceback" not in said(folder)
    leftovers = [path.name for path in (folder / "checkpoints").glob("*.part")]
    assert leftovers == []
