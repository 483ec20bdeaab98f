"""Which parts of the training step ``torch.compile`` compiles on this device."""

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from transformer.common.files import given_path
from transformer.settings.run import RunConfig, skips_blocks
from transformer.training.precision import trains_on_gpu


class CompileChoice(NamedTuple):
    """What is compiled; ``error`` is the reason why ``auto`` compiles nothing on a GPU."""

    parts: Literal["none", "loss", "layers"]
    error: str = ""


def compile_choice(config: RunConfig) -> CompileChoice:
    """The choice of ``trainer.compile``; ``auto`` is none on a CPU, or without a compiler.

    Raises InputError if the user asks for what cannot be compiled here.
    """
    wanted, on_gpu = config.trainer.compile, trains_on_gpu(config.trainer)
    if wanted == "none" or (wanted == "auto" and not on_gpu):
        return CompileChoice("none")
    parts: Literal["loss", "layers"] = "loss" if skips_blocks(config.model) else "layers"
    folder = given_path(config.data.cache) / "compiled"
    error = _compiler_error("cuda" if on_gpu else "cpu", folder)
    if error is None:
        return CompileChoice(parts if wanted == "auto" else wanted)
    if wanted != "auto":
        raise error
    return CompileChoice("none", str(error))


@cache
def _compiler_error(device: str, folder: Path) -> Exception | None:
    """The error of compiling a sum; None if it works."""
    from transformer.training.optimization.compiled_layers import check_compiler

    try:
        check_compiler(torch.device(device), folder)
    except Exception as error:  # A compiler can fail in many ways.
        return error
    return None
