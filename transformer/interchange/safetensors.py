"""Writes and reads a translator as a folder with safetensors weights.

``model.safetensors`` has the weights under our names, ``config.json`` the portable part of a
checkpoint. In int8 a matrix is bytes, and ``NAME.int8_scale`` has a float32 for each row.
``source.model`` and ``target.model`` are the vocabularies; a joint vocabulary is in
``source.model``, without a ``target.model``.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from transformer.common.errors import InputError, errors_name, raise_objections
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.expressible import check_heads
from transformer.interchange.files import readable, write_json
from transformer.model.build import build_transformer
from transformer.model.checkpoint.checkpoint import Checkpoint, portable_part
from transformer.model.checkpoint.locate import SAFETENSORS as WEIGHTS
from transformer.model.checkpoint.validation import validate_portable, validate_weights
from transformer.model.config import ModelConfig
from transformer.model.layers.quantization import rounded
from transformer.model.transformer import Transformer

SETTINGS = "config.json"
SIDES = ("source", "target")
SCALE = ".int8_scale"


def write_safetensors(
    model: Transformer,
    tokenizer: Tokenizer,
    config: dict[str, Any],
    folder: Path,
    quantization: str = "float32",
) -> None:
    """Write a model, its tokenizer and the resolved config of its run into an existing folder."""
    from safetensors.torch import save_file

    check_heads(model)
    write_settings(model.config, tokenizer, config, folder / SETTINGS)
    weights = {one.data_ptr(): (name, one) for name, one in model.state_dict().items()}
    once = {name: one.contiguous() for name, one in weights.values()}
    if quantization == "int8":
        for name in [name for name, one in once.items() if one.is_floating_point()]:
            if once[name].dim() == 2:
                once[name], once[name + SCALE] = rounded(once[name])
    save_file(once, folder / WEIGHTS, metadata={"format": "pt"})
    # save_file ignores the umask: take the mode of the file beside it.
    (folder / WEIGHTS).chmod((folder / SETTINGS).stat().st_mode)


def write_settings(
    model: ModelConfig, tokenizer: Tokenizer, config: dict[str, Any], file: Path
) -> None:
    """Write everything except the weights: a JSON file, and the vocabularies beside it."""
    state = tokenizer.to_state()
    for side in SIDES:
        if state[side] is not None:
            (file.parent / f"{side}.model").write_bytes(bytes(state[side].numpy()))
    values = portable_part(model, state["config"], config) | {"tags": state["tags"]}
    write_json(values, file)


def read_safetensors(folder: Path) -> Checkpoint:
    """Read what ``write_safetensors`` wrote; raises InputError if a file is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with readable(folder, SafetensorError):
        weights = load_file(folder / WEIGHTS)
        for name in [name for name, one in weights.items() if one.dtype == torch.int8]:
            weights[name] = weights[name] * weights.pop(name + SCALE)[:, None]
        checkpoint = read_settings(
            folder / SETTINGS, lambda model: validate_weights(model, {"state_dict": weights})
        )
        model = checkpoint.model
        tied = {one.data_ptr() for name, one in model.state_dict().items() if name in weights}
        absent = {name for name, one in model.state_dict().items() if one.data_ptr() not in tied}
        with errors_name(folder / WEIGHTS):
            raise_objections(f"it lacks {name}" for name in sorted(absent))
        model.load_state_dict(model.state_dict() | weights)
        return checkpoint


def read_settings(
    file: Path, check: Callable[[ModelConfig], None], device: str = "cpu"
) -> Checkpoint:
    """Read what ``write_settings`` wrote; ``check`` may refuse it. ``meta`` gives no weights."""
    folder = file.parent
    with errors_name(folder), readable(folder):
        values = json.loads(file.read_text(encoding="utf-8"))
        if "model_type" in values:
            raise InputError("it is a model of transformers; import it: transformer import")
        config = validate_portable(values)
        check(config)
        with torch.device(device):
            model = build_transformer(config)
        tokenizer = {"config": values["tokenizer"], "tags": values["tags"]}
        tokenizer |= {side: _read_subwords(folder, side) for side in SIDES}
        Tokenizer.from_state(tokenizer)  # raises an error for a damaged vocabulary
        return Checkpoint(model.eval(), tokenizer, values["config"], folder)


def verify_safetensors(model: Transformer, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Compare a model and its tokenizer with the folder; RuntimeError if they differ."""
    found = read_safetensors(folder)
    weights = found.model.state_dict()
    differing = [
        name
        for name, one in model.state_dict().items()
        if not torch.equal(one.cpu(), weights[name])
    ]
    if Tokenizer.from_state(found.tokenizer).fingerprint != tokenizer.fingerprint:
        differing.append("the vocabularies")
    if differing:
        raise RuntimeError(f"{folder}: {differing[0]} differ from the model")
    return {"equal_weights": len(weights), "bytes": (folder / WEIGHTS).stat().st_size}


def _read_subwords(folder: Path, side: str) -> torch.Tensor | None:
    file = folder / f"{side}.model"
    if side == "target" and not file.exists():
        return None
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)
