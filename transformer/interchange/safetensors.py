"""A translator as a folder that other programs can read, and enough to translate with.

``model.safetensors`` holds each weight once under our name, ``config.json`` the portable part of a
checkpoint, ``source.model`` and, if it differs, ``target.model`` the vocabularies.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.build import build_transformer
from transformer.model.checkpoint.checkpoint import Checkpoint, portable_part
from transformer.model.checkpoint.locate import SAFETENSORS as WEIGHTS
from transformer.model.checkpoint.validation import validate_portable, validate_weights
from transformer.model.config import ModelConfig
from transformer.model.heads import heads_off
from transformer.model.transformer import Transformer

SETTINGS = "config.json"
SIDES = ("source", "target")

_FAULTS = (InputError, OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError)
"""Errors of reading a damaged folder."""


def write_safetensors(
    model: Transformer, tokenizer: Tokenizer, config: dict[str, Any], folder: Path
) -> None:
    """Write a model, its tokenizer and the resolved config of its run into an existing folder.

    Raises:
        InputError: Heads are switched off, which is not part of the weights.
    """
    from safetensors.torch import save_model

    if off := heads_off(model):
        raise InputError(
            f"format=safetensors keeps all heads, {off[0]} too; leave out heads_off here, and give "
            "it where the folder is used"
        )
    write_settings(model.config, tokenizer, config, folder / SETTINGS)
    save_model(model, str(folder / WEIGHTS), metadata={"format": "pt"})
    # save_model makes it readable for its owner only; the settings follow the umask.
    (folder / WEIGHTS).chmod((folder / SETTINGS).stat().st_mode)


def write_settings(
    model: ModelConfig, tokenizer: Tokenizer, config: dict[str, Any], file: Path
) -> None:
    """Write everything but the weights: a JSON file, and the SentencePiece models beside it."""
    state = tokenizer.to_state()
    for side in SIDES:
        if state[side] is not None:
            (file.parent / f"{side}.model").write_bytes(bytes(state[side].numpy()))
    values = portable_part(model, state["config"], config) | {"tags": state["tags"]}
    text = json.dumps(values, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def read_safetensors(folder: Path) -> Checkpoint:
    """Read what ``write_safetensors`` wrote.

    Raises:
        InputError: A file is missing, damaged, of another format, or holds what no training
            writes (model/checkpoint/validation.py).
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file, load_model

    def checked(model: ModelConfig) -> None:
        validate_weights(model, {"state_dict": load_file(folder / WEIGHTS)})

    try:
        found = read_settings(folder / SETTINGS, checked)
        load_model(found.model, folder / WEIGHTS)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise _unreadable(folder, error) from error
    return found


def read_settings(
    file: Path, check: Callable[[ModelConfig], None], device: str = "cpu"
) -> Checkpoint:
    """Read what ``write_settings`` wrote; errors are those of ``read_safetensors``.

    ``check`` raises InputError if the weights beside the file are too few for the model. The model
    has its initial weights; on the device ``meta`` it has none.
    """
    folder = file.parent
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(values, dict) and "model_type" in values:
            raise InputError("it is a model of transformers; import it: transformer import")
        config = validate_portable(values)
        check(config)
        with torch.device(device):
            model = build_transformer(config)
        tokenizer = {"config": values["tokenizer"], "tags": values["tags"]}
        tokenizer |= {side: _read_subwords(folder, side) for side in SIDES}
        Tokenizer.from_state(tokenizer)
    except _FAULTS as error:
        raise _unreadable(folder, error) from error
    return Checkpoint(model.eval(), tokenizer, values["config"], folder)


def _unreadable(folder: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(f"{folder} cannot be read as an export: {reason}")


def verify_safetensors(model: Transformer, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Read the folder again, and compare it bit by bit; returns the numbers of weights and bytes.

    Raises RuntimeError if it is not the same.
    """
    found = read_safetensors(folder)
    weights = found.model.state_dict()
    for name, weight in model.state_dict().items():
        if not torch.equal(weight.cpu(), weights[name]):
            raise RuntimeError(f"{folder / WEIGHTS}: {name} is not what was written")
    if Tokenizer.from_state(found.tokenizer).fingerprint != tokenizer.fingerprint:
        raise RuntimeError(f"{folder}: the vocabularies are not what was written")
    return {"equal_weights": len(weights), "bytes": (folder / WEIGHTS).stat().st_size}


def _read_subwords(folder: Path, side: str) -> torch.Tensor | None:
    file = folder / f"{side}.model"
    if side == "target" and not file.exists():
        return None  # The vocabulary is joint.
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)
