"""Reads a translator from a folder that ``export`` wrote: a model with or without its weights.

``model.safetensors`` has the weights under our names, ``config.json`` the portable part of a
checkpoint. In int8 a matrix is bytes, and ``NAME.int8_scale`` has a float32 for each row.
``source.model`` and ``target.model`` are the vocabularies; a joint vocabulary is in
``source.model``, without a ``target.model``.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from transformer.checkpoint.checkpoint import (
    WEIGHTS_PREFIX,
    Checkpoint,
    build_empty,
    load_checkpoint,
    load_weights,
    read_portable,
    validate_weights,
)
from transformer.checkpoint.run_directory import SAFETENSORS as WEIGHTS
from transformer.checkpoint.run_directory import is_exported
from transformer.common.errors import (
    InputError,
    errors_name,
    raise_objections,
    readable,
)
from transformer.common.packages import require_package
from transformer.settings.model import ModelConfig

SETTINGS = "config.json"
SIDES = ("source", "target")
SCALE = ".int8_scale"


def load_model(path: Path, *, trusted: bool = False) -> Checkpoint:
    """Load a translator from a run, a checkpoint file, or an export; or raise InputError.

    ``trusted`` is that of ``load_checkpoint``.
    """
    if is_exported(path):
        return read_safetensors(path, trusted=trusted)
    return load_checkpoint(path, trusted=trusted)


def read_safetensors(folder: Path, *, trusted: bool = False) -> Checkpoint:
    """Read what ``write_safetensors`` wrote; raises InputError if a file is missing or damaged."""
    require_package("safetensors", str(folder), "export")
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with readable(folder, SafetensorError):
        weights = load_file(folder / WEIGHTS)
        for name in [name for name, weight in weights.items() if weight.dtype == torch.int8]:
            weights[name] = weights[name] * weights.pop(name + SCALE)[:, None]
        checkpoint = read_settings(
            folder / SETTINGS,
            lambda model: validate_weights(model, {"state_dict": weights}),
            trusted=trusted,
        )
        checkpoint.model.tie_weights()
        parameters = checkpoint.model.state_dict(keep_vars=True)
        # A tied weight is written once, under one of its names.
        by_parameter = {
            id(parameters[name]): weight for name, weight in weights.items() if name in parameters
        }
        with errors_name(folder / WEIGHTS):
            absent = [name for name, p in parameters.items() if id(p) not in by_parameter]
            raise_objections(f"it lacks {name}" for name in sorted(absent))
        weights |= {name: by_parameter[id(p)] for name, p in parameters.items()}
        weights = {WEIGHTS_PREFIX + name: weight for name, weight in weights.items()}
        load_weights(checkpoint.model, {"state_dict": weights}, folder / WEIGHTS, assign=True)
        return checkpoint


def read_settings(
    file: Path, check: Callable[[ModelConfig], None], *, trusted: bool = False
) -> Checkpoint:
    """Read what ``write_settings`` wrote; the model has no weights. ``check`` may refuse it."""
    folder = file.parent
    with errors_name(folder), readable(folder):
        values = json.loads(file.read_text(encoding="utf-8"))
        if "model_type" in values:
            raise InputError("it is a model of transformers; import it: transformer import")
        portable = read_portable(values)
        check(portable.config.model)
        model = build_empty(portable.config.model, trusted=trusted)
        tokenizer = {"config": values["tokenizer"], "tags": values["tags"]}
        tokenizer |= {side: _read_subwords(folder, side) for side in SIDES}
        return Checkpoint(model.eval(), replace(portable, tokenizer=tokenizer), folder)


def _read_subwords(folder: Path, side: str) -> torch.Tensor | None:
    file = folder / f"{side}.model"
    if side == "target" and not file.exists():
        return None
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)
