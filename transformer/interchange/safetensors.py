"""Writes a translator as a folder with safetensors weights, which checkpoint/exported.py reads."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer.checkpoint.checkpoint import Portable
from transformer.checkpoint.exported import SCALE, SETTINGS, SIDES, read_safetensors
from transformer.checkpoint.run_directory import SAFETENSORS as WEIGHTS
from transformer.data.text.parallel import Referenced
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translator import Translator
from transformer.interchange.files import write_json
from transformer.interchange.verification import PLAIN, check_heads, compare_texts
from transformer.model.layers.quantization import in_precision, rounded
from transformer.model.transformer import Transformer
from transformer.settings.metrics import MetricsConfig
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
    # A tied weight is written once.
    by_memory = {weight.data_ptr(): (name, weight) for name, weight in model.state_dict().items()}
    weights = {name: weight.contiguous() for name, weight in by_memory.values()}
    if quantization == "int8":
        for name, weight in list(weights.items()):
            if weight.is_floating_point() and weight.dim() == 2:
                weights[name], weights[name + SCALE] = rounded(weight)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
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
    exported = read_safetensors(folder)
    weights = exported.model.state_dict()
    differing = [
        name
        for name, weight in model.state_dict().items()
        if not torch.equal(weight.cpu(), weights[name])
    ]
    if Tokenizer.from_state(exported.portable.tokenizer).fingerprint != tokenizer.fingerprint:
        differing.append("the vocabularies")
    if differing:
        raise RuntimeError(f"{folder}: {differing[0]} differ from the model")
    return {"equal_weights": len(weights), "bytes": (folder / WEIGHTS).stat().st_size}


def verify_int8(
    translator: Translator, folder: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare greedy translations of a model and its int8 folder with ``precision=int8``."""
    model = in_precision(read_safetensors(folder).model, "int8")
    search = replace(translator.search, **PLAIN)
    exported = Translator(model, translator.tokenizer, search, translator.batch_tokens)

    def translate(texts: Sequence[str]) -> list[str]:
        return [translation.text for translation in exported.translate(texts)]

    verified = compare_texts(translator, PLAIN, translate, pairs, metrics)
    return {**verified, "bytes": (folder / WEIGHTS).stat().st_size}
