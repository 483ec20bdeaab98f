"""The checkpoint: one file of plain values and tensors that needs no other file."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from transformer.checkpoint.archive import SHARDS, UnreadableFile, read_archive, write_archive
from transformer.checkpoint.locate import LAST, PREVIOUS, find_checkpoint
from transformer.checkpoint.trust import named_layers
from transformer.checkpoint.validation import (
    Portable,
    read_portable,
    validate_size,
    validate_weights,
)
from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path
from transformer.common.own_code import import_code
from transformer.model.build import assemble_transformer
from transformer.model.positions.absolute import SinusoidalPositions, sinusoids
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig

if TYPE_CHECKING:
    from transformer.model.single_stack import SingleStack

Model = TypeVar("Model", bound=nn.Module)

PORTABLE = "transformer"

WEIGHTS_PREFIX = "model."
"""Prefix of the weights: Lightning's name for the attribute with the model."""


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode, with all that its file says besides the weights."""

    model: Transformer
    portable: Portable
    path: Path

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        return self.portable.config


Loaded = Callable[[Sequence[Checkpoint]], object]
"""Is told checkpoints when they are loaded."""


def portable_part(payload: Mapping[str, Any]) -> Portable:
    """The portable part of the content of a checkpoint."""
    return read_portable(payload[PORTABLE])


def read_payload(path: Path, *, tensors: bool = True, parts: bool = True) -> dict[str, Any]:
    """Everything in the file; InputError unless it is a whole checkpoint of this framework.

    For settings alone, read without ``tensors`` (``read_archive``): it takes no time. Without
    ``parts``, tensors that several ranks have written in parts are not read (``read_parts``).
    """
    payload = read_archive(path, tensors=tensors)
    values = payload if isinstance(payload, dict) else {}
    portable: Any = values.get(PORTABLE)
    weights: Any = values.get("state_dict")
    is_ours = isinstance(portable, dict) and "format" in portable and isinstance(weights, dict)
    if not is_ours or not all(isinstance(name, str) for name in weights):
        raise InputError(f"{path} is not a checkpoint of this framework")
    if tensors and SHARDS in payload:
        from transformer.checkpoint.sharded import locate

        payload = locate(payload, path.parent)
        if not parts:
            weights = set(payload["state_dict"].values())
            with errors_name(path):
                numbers = sum(weight.shape.numel() for weight in weights)
                validate_size(portable_part(payload).config.model, numbers)
            return payload
        return read_parts(payload, path)
    with errors_name(path):
        model = portable_part(payload).config.model
        if tensors:
            validate_weights(model, payload)
    return payload


def read_parts(payload: dict[str, Any], path: Path, scratch: Path | None = None) -> dict[str, Any]:
    """Read what ``read_payload`` has left in parts; with a scratch folder, into mapped files."""
    if SHARDS not in payload:
        return payload
    from transformer.checkpoint.sharded import read_whole

    with errors_name(path):
        payload = read_whole(payload, scratch)
        validate_weights(portable_part(payload).config.model, payload)
    return payload


def read_merged(path: Path) -> dict[str, Any]:
    """``read_payload``, with adapters (LoRA) merged into the weights, which they must fit."""
    payload = read_payload(path)
    portable = portable_part(payload)
    model = portable.config.model
    if not model.lora_rank:
        return payload
    from transformer.model.layers.lora import merge_adapters

    scale, parts = model.lora_alpha / model.lora_rank, ("state_dict", "current_model_state")
    with _weights_fit(path):
        weights = {part: merge_adapters(payload[part], scale) for part in parts if part in payload}
    merged = replace(portable.config, model=replace(model, lora_rank=0))
    return payload | weights | {PORTABLE: replace(portable, config=merged).to_plain()}


def find_last(path: Path, *, tensors: bool = True) -> tuple[Path, dict[str, Any]]:
    """Read a file, or the newest whole checkpoint of a run; raises InputError if there is none.

    Tensors that lie in parts are not read (``read_parts``). Without ``tensors``
    (``read_payload``), it may be a file whose tensors are damaged.
    """
    path = given_path(path)
    file = find_checkpoint(path, LAST)
    before = file.with_name(f"{PREVIOUS}.ckpt")
    damages = []
    for candidate in [file] if path.is_file() or not before.is_file() else [file, before]:
        try:
            return candidate, read_payload(candidate, tensors=tensors, parts=False)
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


def checkpoint_task(payload: Mapping[str, Any]) -> str:
    """The task of the run that wrote the checkpoint."""
    return portable_part(payload).config.task


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


def build_empty(config: ModelConfig, *, trusted: bool = False) -> Transformer:
    """Build a model whose weights take no memory yet (torch's device ``meta``), to be loaded."""
    return assemble_empty(config, assemble_transformer, trusted=trusted)


def assemble_empty(
    config: ModelConfig, assemble: Callable[[ModelConfig], Model], *, trusted: bool = False
) -> Model:
    """``build_empty`` for a model of any kind."""
    if trusted:
        import_code(named_layers(config))
    if config.has_own_layers:
        return assemble(config)  # a class of the user may make more than weights
    with torch.device("meta"):
        model = assemble(config)
    for module in model.modules():
        if isinstance(module, SinusoidalPositions):
            module.table = sinusoids(*module.table.shape, fairseq=module.fairseq)
    return model


def load_checkpoint(path: str | os.PathLike[str], *, trusted: bool = False) -> Checkpoint:
    """Load a translator from a file, or the best one of a run directory; or raise InputError.

    If ``trusted``, the modules of its layers of a user, ``MODULE:CLASS``, are imported.
    """
    file = find_checkpoint(Path(path))
    payload = read_merged(file)
    require_translation(payload, file)
    portable = portable_part(payload)
    with errors_name(file):
        model = build_empty(portable.config.model, trusted=trusted)
    load_weights(model, payload, file, assign=True)
    return Checkpoint(model, portable, file)


def write_payload(payload: Any, path: Path) -> None:
    """Write the file by ``write_archive``; the newest file of a run keeps the previous one."""
    before = path.with_name(f"{PREVIOUS}.ckpt") if path.name == f"{LAST}.ckpt" else None
    write_archive(payload, path, before)
