"""The model that the arguments of a verb name, or the ensemble: checkpoints, device, precision."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, ListConfig

from transformer.common.errors import InputError, how_to_install
from transformer.common.files import given_path
from transformer.common.schema import typed_value
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.ensemble import Averaging, Ensemble, Model
from transformer.model.checkpoint.checkpoint import Checkpoint, load_checkpoint
from transformer.model.checkpoint.locate import (
    ENGINE_EXPORT,
    find_checkpoint,
    is_ctranslate2,
    is_exported,
)
from transformer.model.config import Precision
from transformer.model.heads import parse_heads, switch_off


def load_checkpoints(names: Any) -> list[Checkpoint]:
    """``checkpoint=PATH``, or ``checkpoint=[PATH,…]`` of one vocabulary.

    Raises:
        InputError: One cannot be read, or another was trained with another tokenizer.
    """
    first, *more = checkpoints = [_load(path) for path in checkpoint_paths(names)]
    vocabulary = Tokenizer.from_state(first.tokenizer).fingerprint
    for other in more:
        if Tokenizer.from_state(other.tokenizer).fingerprint != vocabulary:
            raise InputError(
                f"{other.path} has another vocabulary than {first.path}; an ensemble needs models "
                "that were trained with the same tokenizer"
            )
    return checkpoints


def checkpoint_paths(names: Any) -> list[Path]:
    """The value of ``checkpoint``: one path or several.

    Raises:
        InputError: There is none.
    """
    given = names if isinstance(names, ListConfig) else [names]
    if not given:
        raise InputError("checkpoint=[] names none; give at least one")
    return [given_path(str(name)) for name in given]


def resolve_file(path: Path) -> Path:
    """The checkpoint file that a path means, or the folder of ``export``.

    Raises:
        InputError: It does not exist.
    """
    return path if is_exported(path) else find_checkpoint(path)


def load_checkpoint_model(config: DictConfig, checkpoints: Sequence[Checkpoint]) -> Model:
    """The model of these checkpoints on its device, as the config says.

    Of its keys ``device``, ``heads_off``, ``precision`` and ``averaging`` any may be missing.

    Raises:
        InputError: There is no such device, head or precision, or ``averaging`` averages nothing.
    """
    device = resolve_device(config.get("device", "cpu"))
    precision = typed_value(config.get("precision", "float32"), Precision, "precision")
    names = config.get("heads_off")
    given = names if isinstance(names, ListConfig) else [] if names is None else [names]
    heads = list(map(str, given))
    for checkpoint in checkpoints:
        if is_ctranslate2(checkpoint.path) and device.type != "meta":
            raise InputError(f"{checkpoint.path} {ENGINE_EXPORT}")
        switch_off(checkpoint.model, parse_heads(checkpoint.model, heads))
    models = [checkpoint.model.float() for checkpoint in checkpoints]
    if precision != "float32":
        from transformer.model.layers.quantization import in_precision

        models = [in_precision(model, precision, device) for model in models]
    models = [model.to(device) for model in models]
    averaging = typed_value(config.get("averaging"), Averaging | None, "averaging")
    if len(models) > 1:
        return Ensemble(models, averaging or "probability")
    if averaging is not None:
        raise InputError(f"averaging={averaging} is of ensembles: checkpoint=[PATH,PATH]")
    return models[0]


def resolve_device(name: Any) -> torch.device:
    """The device of that name; ``cuda`` is the GPU of this process among several.

    Raises:
        InputError: It does not exist.
    """
    name = typed_value(name, str, "device")
    try:
        device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device={name} cannot be used here: {reason}") from error
    return device


def _load(path: Path) -> Checkpoint:
    """A checkpoint, a run directory, or a folder of ``export``."""
    if is_ctranslate2(path):
        from transformer.interchange.ctranslate2 import read_ctranslate2

        return read_ctranslate2(path)
    if not is_exported(path):
        return load_checkpoint(path)
    if find_spec("safetensors") is None:
        raise InputError(f"{path} needs safetensors: {how_to_install('export')}")
    from transformer.interchange.safetensors import read_safetensors

    return read_safetensors(path)
