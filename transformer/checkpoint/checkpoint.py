"""The checkpoint: one file of plain values and tensors that needs no other file."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from transformer.checkpoint.archive import SHARDS, UnreadableFile, read_archive, write_archive
from transformer.checkpoint.locate import LAST, PREVIOUS, find_checkpoint
from transformer.checkpoint.validation import (
    FORMAT,
    rename_metrics,
    validate_portable,
    validate_weights,
)
from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path
from transformer.common.schema import typed
from transformer.common.version import VERSION
from transformer.model.build import assemble_transformer
from transformer.model.positions.absolute import SinusoidalPositions, sinusoids
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig

if TYPE_CHECKING:
    from transformer.model.single_stack import SingleStack

Model = TypeVar("Model", bound=nn.Module)

PORTABLE = "transformer"

WEIGHTS_PREFIX = "model."
"""Prefix of the weights: Lightning's name for the attribute with the model."""


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode, the state of its tokenizer, and the config of its run."""

    model: Transformer
    tokenizer: dict[str, Any]
    config: dict[str, Any]
    path: Path
    longest_source: int | None = None
    """Subwords that at most one in 1,000 sources of the training text exceeds, if it is known."""


def portable_part(
    model: ModelConfig,
    tokenizer: dict[str, Any],
    config: dict[str, Any],
    longest_source: int | None = None,
) -> dict[str, Any]:
    """The data for inference besides the weights, stored under the key ``PORTABLE``."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": model.to_dict(),
        "tokenizer": tokenizer,
        "config": config,
        "longest_source": longest_source,
    }


def read_payload(path: Path) -> dict[str, Any]:
    """Everything in the file; InputError unless it is a whole checkpoint of this framework."""
    payload = read_archive(path)
    parts = payload if isinstance(payload, dict) else {}
    portable: Any = parts.get(PORTABLE)
    weights: Any = parts.get("state_dict")
    is_ours = isinstance(portable, dict) and "format" in portable and isinstance(weights, dict)
    if not is_ours or not all(isinstance(name, str) for name in weights):
        raise InputError(f"{path} is not a checkpoint of this framework")
    if SHARDS in payload:
        from transformer.checkpoint.sharded import join_shards

        payload = join_shards(payload, path.parent)
    with errors_name(path):
        validate_weights(validate_portable(payload[PORTABLE]), payload)
    rename_metrics(payload[PORTABLE])
    return payload


def read_merged(path: Path) -> dict[str, Any]:
    """``read_payload``, with adapters (LoRA) merged into the weights, which they must fit."""
    payload = read_payload(path)
    portable = payload[PORTABLE]
    model = typed(ModelConfig, portable["model"], "model")
    if not model.lora_rank:
        return payload
    from transformer.model.layers.lora import merge_adapters

    config = portable["config"] | {"model": portable["config"]["model"] | {"lora_rank": 0}}
    scale, parts = model.lora_alpha / model.lora_rank, ("state_dict", "current_model_state")
    with _weights_fit(path):
        weights = {part: merge_adapters(payload[part], scale) for part in parts if part in payload}
    merged = portable | {"config": config, "model": portable["model"] | {"lora_rank": 0}}
    return payload | weights | {PORTABLE: merged}


def find_last(path: Path) -> tuple[Path, dict[str, Any]]:
    """Read a file, or the newest whole checkpoint of a run; raises InputError if there is none."""
    path = given_path(path)
    file = find_checkpoint(path, LAST)
    before = file.with_name(f"{PREVIOUS}.ckpt")
    damages = []
    for candidate in [file] if path.is_file() or not before.is_file() else [file, before]:
        try:
            return candidate, read_payload(candidate)
        except UnreadableFile:
            raise
        except InputError as error:
            damages.append(str(error))
    best = file.with_name("best.ckpt")
    hint = f"; resume with checkpoint={best} from the best validation" if best.is_file() else ""
    raise InputError("; and ".join(dict.fromkeys(damages)) + hint)


TEXT_TO_TEXT = ("translation", "denoising")
"""Tasks of an encoder-decoder: one begins with the weights of the other."""

SINGLE_STACKS = ("tagging", "language_modeling")
"""Tasks of an encoder alone, or a decoder alone."""


def checkpoint_task(payload: dict[str, Any]) -> str:
    """The task of the run that wrote the checkpoint."""
    return str(payload[PORTABLE]["config"]["task"])


def require_translation(payload: dict[str, Any], file: Path) -> None:
    """Raise InputError if the model is a tagger or a language model."""
    # Another task may be anything; a model without a decoder is refused when it is built.
    if (task := checkpoint_task(payload)) in SINGLE_STACKS:
        raise InputError(
            f"{file} was trained for task={task}, not text to text; predict checkpoint=… "
            "takes new text, evaluate checkpoint=… split=test scores it"
        )


def load_weights(
    model: "Transformer | SingleStack", payload: dict[str, Any], file: Path, *, assign: bool = False
) -> None:
    """Load weights, with ``assign`` by reference, and set evaluation mode; or InputError."""
    weights = {k: w for k, w in model.state_dict().items() if ".lora_" in k}
    weights |= {
        name.removeprefix(WEIGHTS_PREFIX): tensor
        for name, tensor in payload["state_dict"].items()
        if name.startswith(WEIGHTS_PREFIX)
    }
    with _weights_fit(file):
        model.load_state_dict(weights, assign=assign)
    if assign:
        model.tie_weights()
    model.eval()


@contextmanager
def _weights_fit(file: Path) -> Iterator[None]:
    try:
        yield
    except (LookupError, RuntimeError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the weights in {file} do not fit its model: {reason}") from error


def build_empty(config: ModelConfig) -> Transformer:
    """Build a model whose weights take no memory yet (torch's device ``meta``), to be loaded."""
    return assemble_empty(config, assemble_transformer)


def assemble_empty(config: ModelConfig, assemble: Callable[[ModelConfig], Model]) -> Model:
    """``build_empty`` for a model of any kind."""
    if config.has_own_layers:
        return assemble(config)  # a class of the user may make more than weights
    with torch.device("meta"):
        model = assemble(config)
    for module in model.modules():
        if isinstance(module, SinusoidalPositions):
            module.table = sinusoids(*module.table.shape, fairseq=module.fairseq)
    return model


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Load a translator from a file, or the best one of a run directory; or raise InputError."""
    file = find_checkpoint(Path(path))
    payload = read_merged(file)
    require_translation(payload, file)
    portable = payload[PORTABLE]
    with errors_name(file):
        model = build_empty(typed(ModelConfig, portable["model"], "model"))
    load_weights(model, payload, file, assign=True)
    longest = portable.get("longest_source")
    return Checkpoint(model, portable["tokenizer"], portable["config"], file, longest)


def write_payload(payload: Any, path: Path) -> None:
    """Write the file by ``write_archive``; the newest file of a run keeps the previous one."""
    before = path.with_name(f"{PREVIOUS}.ckpt") if path.name == f"{LAST}.ckpt" else None
    write_archive(payload, path, before)
