"""Writes a translator as a folder with safetensors weights (checkpoint/exported.py)."""

from pathlib import Path
from typing import Any

import torch

from transformer.checkpoint.checkpoint import Portable
from transformer.checkpoint.exported import SCALE, SETTINGS, SIDES, read_safetensors
from transformer.checkpoint.run_directory import SAFETENSORS as WEIGHTS
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.files import write_json
from transformer.interchange.format_limits import check_heads
from transformer.model.layers.quantization import rounded
from transformer.model.transformer import Transformer
from transformer.settings.run import RunConfig


def write_safetensors(
    model: Transformer,
    tokenizer: Tokenizer,
    config: RunConfig,
    folder: Path,
    quantization: str = "float32",
    longest_source: int | None = None,
) -> None:
    """Write model, tokenizer and resolved config into an existing folder; float32 or int8.

    ``longest_source`` is that of the checkpoint.
    """
    from safetensors.torch import save_file

    check_heads(model)
    write_settings(tokenizer, config, folder / SETTINGS, longest_source)
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
    tokenizer: Tokenizer,
    config: RunConfig,
    file: Path,
    longest_source: int | None = None,
) -> None:
    """Write everything except the weights: a JSON file, and the vocabularies beside it."""
    state = tokenizer.to_state()
    for side in SIDES:
        if state[side] is not None:
            (file.parent / f"{side}.model").write_bytes(bytes(state[side].numpy()))
    values = Portable(config, state["config"], longest_source).to_plain()
    write_json(values | {"tags": state["tags"]}, file)


def verify_safetensors(model: Transformer, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Compare a model and its tokenizer with the folder; RuntimeError if they differ."""
    found = read_safetensors(folder)
    weights = found.model.state_dict()
    differing = [
        name
        for name, one in model.state_dict().items()
        if not torch.equal(one.cpu(), weights[name])
    ]
    if Tokenizer.from_state(found.portable.tokenizer).fingerprint != tokenizer.fingerprint:
        differing.append("the vocabularies")
    if differing:
        raise RuntimeError(f"{folder}: {differing[0]} differ from the model")
    return {"equal_weights": len(weights), "bytes": (folder / WEIGHTS).stat().st_size}
