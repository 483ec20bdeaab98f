"""The precision of a run: ``auto`` by the device, and autocast for the search between updates."""

from dataclasses import replace

import torch

from transformer.common.processor import processor
from transformer.settings.training import TrainerConfig


def resolve_precision(trainer: TrainerConfig) -> TrainerConfig:
    """The arguments of the trainer, with the fastest precision of the device for ``auto``."""
    if trainer.precision != "auto":
        return trainer
    on_gpu = trains_on_gpu(trainer)
    if on_gpu:
        torch.set_float32_matmul_precision("high")
    on_mps = trainer.accelerator == "auto" and torch.backends.mps.is_available()
    on_cpu = trainer.accelerator in ("cpu", "auto") and not on_mps
    device = torch.device("cuda" if on_gpu else "cpu")
    mixed = (on_gpu or on_cpu) and multiplies_bfloat16(device)
    return replace(trainer, precision="bf16-mixed" if mixed else "32-true")


def multiplies_bfloat16(device: torch.device) -> bool | None:
    """Whether a GPU or CPU has instructions for products in bfloat16; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return processor().bfloat16 if device.type == "cpu" else None


def trains_on_gpu(trainer: TrainerConfig) -> bool:
    """Whether the arguments of the trainer choose a GPU, and there is a GPU."""
    return trainer.accelerator in ("gpu", "cuda", "auto") and torch.cuda.is_available()


def search_autocast(precision: str | int, device: torch.device) -> torch.autocast:
    """The autocast of training, for a search on a GPU; a CPU searches in float32."""
    enabled = precision == "bf16-mixed" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)
