"""The device of a search, and the precision and size of batches that suit it."""

import os

import torch

from transformer.common.errors import InputError
from transformer.settings.model import Precision

CPU_TOKENS = 4096
"""Padded source tokens of a batch, counted once a hypothesis."""
GPU_TOKENS = 65_536
"""The same on a GPU."""


def find_device(name: str) -> torch.device:
    """The device of that name; ``cuda`` is the GPU of this process among several."""
    try:
        device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device={name} cannot be used here: {reason}") from error
    return device


def suited_precision(precision: Precision | None, device: torch.device) -> Precision:
    """The precision; None is bfloat16 on a GPU that has it, else float32."""
    if precision is not None:
        return precision
    on_gpu = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if on_gpu else "float32"


def suited_batch_tokens(tokens: int | None, device: torch.device) -> int:
    """The tokens of a batch; None is what keeps the device busy."""
    if tokens is not None:
        return tokens
    return GPU_TOKENS if device.type == "cuda" else CPU_TOKENS
