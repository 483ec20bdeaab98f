"""The precision of a run: ``auto`` by the device, and autocast for the search between updates."""

from collections.abc import Mapping
from typing import Any

import torch


def resolve_precision(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the trainer, with the fastest precision of the device for ``auto``.

    On a GPU that is bf16-mixed, and TF32 for products that stay float32; on older cards, and on a
    CPU, 32-true.
    """
    if trainer["precision"] != "auto":
        return dict(trainer)
    if on_gpu := trains_on_gpu(trainer):
        torch.set_float32_matmul_precision("high")
    narrow = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    return {**trainer, "precision": "bf16-mixed" if narrow else "32-true"}


def trains_on_gpu(trainer: Mapping[str, Any]) -> bool:
    """Whether the arguments of the trainer choose a GPU, and one is there."""
    return trainer["accelerator"] in ("gpu", "cuda", "auto") and torch.cuda.is_available()


def search_autocast(precision: str | int, device: torch.device) -> torch.autocast:
    """The autocast of training, for a search on a GPU; a CPU searches in float32."""
    enabled = precision == "bf16-mixed" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)
