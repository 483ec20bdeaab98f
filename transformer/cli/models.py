"""The model that a call of a verb means, or the ensemble: checkpoints, device and precision."""

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
from transformer.interchange.ctranslate2 import is_ctranslate2, read_ctranslate2
from transformer.interchange.safetensors import is_exported, read_safetensors
from transformer.model.checkpoint.checkpoint import Checkpoint, load_checkpoint
from transformer.model.checkpoint.locate import ENGINE_EXPORT, find_checkpoint
from transformer.model.heads import parse_heads, switch_off
from transformer.model.layers.quantization import Precision, in_precision
from transformer.model.transformer import Transformer


def load_checkpoints(names: Any) -> list[Checkpoint]:
    """``checkpoint=PATH``, or ``checkpoint=[PATH,…]`` of one vocabulary.

    Raises:
        InputError: One cannot be read, or another was trained with another tokenizer.
    """
    given = names if isinstance(names, ListConfig) else [names]
    paths = [given_path(str(name)) for name in given]
    if not paths:
        raise InputError("checkpoint=[] names none; give at least one")
    first, *others = [_load(path) for path in paths]
    vocabulary = Tokenizer.from_state(first.tokenizer).fingerprint
    for other in others:
        if Tokenizer.from_state(other.tokenizer).fingerprint != vocabulary:
            raise InputError(
                f"{other.path} has another vocabulary than {first.path}; an ensemble needs models "
                "that were trained with the same tokenizer"
            )
    return [first, *others]


def resolve_file(path: Path) -> Path:
    """The checkpoint file that a path means, or the folder of ``export``.

    Raises:
        InputError: There is none.
    """
    return path if is_exported(path) else find_checkpoint(path)


def load_checkpoint_model(config: DictConfig, checkpoints: Sequence[Checkpoint]) -> Model:
    """The model of these checkpoints on its device, as the config wants it.

    Of its keys ``device``, ``heads_off``, ``precision`` and ``averaging`` any may be missing.

    Raises:
        InputError: There is no such device, head or precision, or ``averaging`` averages nothing.
    """
    device = resolve_device(config.get("device", "cpu"))
    precision = typed_value(config.get("precision", "float32"), Precision, "precision")
    for checkpoint in checkpoints:
        if is_ctranslate2(checkpoint.path) and device.type != "meta":
            raise InputError(f"{checkpoint.path} {ENGINE_EXPORT}")
        _switch_off(config.get("heads_off"), checkpoint.model)
    models = [in_precision(one.model, precision, device).to(device) for one in checkpoints]
    averaging = resolve_averaging(config, len(models))
    return models[0] if averaging is None else Ensemble(models, averaging)


def resolve_averaging(config: DictConfig, models: int) -> Averaging | None:
    """How so many models are averaged; None for a single one.

    Raises:
        InputError: There is no such way, or there is nothing to average.
    """
    averaging: Averaging | None = config.get("averaging")
    typed_value(averaging, Averaging | None, "averaging")
    if models > 1:
        return averaging or "probability"
    if averaging is not None:
        raise InputError(f"averaging={averaging} is of ensembles: checkpoint=[PATH,PATH]")
    return None


def resolve_device(name: Any) -> torch.device:
    """The device of that name; ``cuda`` is the GPU of this process where several share the work.

    Raises:
        InputError: It is not there.
    """
    check_device(name)
    try:
        device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise _no_device(name, error) from error
    return device


def check_device(name: Any) -> None:
    """Refuse what is the name of no device, be it here or elsewhere.

    Raises:
        InputError: It is none.
    """
    try:
        torch.device(typed_value(name, str, "device"))
    except RuntimeError as error:
        raise _no_device(name, error) from error


def _no_device(name: Any, error: Exception) -> InputError:
    reason = str(error).splitlines()[0]
    return InputError(f"device={name} cannot be used here: {reason}")


def _load(path: Path) -> Checkpoint:
    """A checkpoint, a run directory, or a folder of ``export``."""
    if is_ctranslate2(path):
        return read_ctranslate2(path)
    if not is_exported(path):
        return load_checkpoint(path)
    if find_spec("safetensors") is None:
        raise InputError(f"{path} needs safetensors: {how_to_install('export')}")
    return read_safetensors(path)


def _switch_off(names: Any, model: Transformer) -> None:
    """``heads_off=[NAME,…]``, or one name alone."""
    given = names if isinstance(names, ListConfig) else [] if names is None else [names]
    switch_off(model, parse_heads(model, map(str, given)))
