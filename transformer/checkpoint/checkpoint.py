"""The checkpoint: one file of plain values and tensors that needs no other file.

docs/checkpoint.md lists its keys. archive.py reads and writes the file safely; this module checks
its content before it is used: the settings, and the weights against the model.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from transformer.checkpoint.archive import SHARDS, UnreadableFile, read_archive, write_archive
from transformer.checkpoint.run_directory import LAST, PREVIOUS, find_checkpoint
from transformer.checkpoint.trust import named_layers
from transformer.common.errors import InputError, errors_name, raise_objections
from transformer.common.files import given_path
from transformer.common.own_code import import_code
from transformer.common.version import VERSION
from transformer.model.build import assemble_transformer
from transformer.model.positions.absolute import SinusoidalPositions, sinusoids
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig, run_config, stored_values

if TYPE_CHECKING:
    from transformer.model.single_stack import SingleStack

Model = TypeVar("Model", bound=nn.Module)

FORMAT = 9
"""Format of the portable part; other formats are rejected."""

PORTABLE = "transformer"
"""Key of the portable part."""

WEIGHTS_PREFIX = "model."
"""Prefix of the weights: Lightning's name for the attribute with the model."""

TEXT_TO_TEXT = ("translation", "denoising")
"""Tasks of an encoder-decoder: one begins with the weights of the other."""

SINGLE_STACKS = ("tagging", "language_modeling")
"""Tasks of an encoder alone, or a decoder alone."""

_FINITE = ("state_dict", "current_model_state", "optimizer_states")
"""Keys whose tensors must be finite."""

_MAX_LAYERS = 1_000


@dataclass(frozen=True)
class Portable:
    """What a checkpoint holds besides its weights: all that a translator needs.

    Attributes:
        config: The settings of the run; its model has the sizes of the vocabularies.
        tokenizer: `Tokenizer.to_state`.
        longest_source: Subwords that at most one in 1,000 sources of the training text exceeds;
            None if it is unknown.
    """

    config: RunConfig
    tokenizer: Mapping[str, Any]
    longest_source: int | None = None

    def to_plain(self) -> dict[str, Any]:
        """Plain values and tensors, which ``read_portable`` reads."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "config": stored_values(self.config),
            "tokenizer": dict(self.tokenizer),
            "longest_source": self.longest_source,
        }


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode, with the rest of the portable part of its file."""

    model: Transformer
    portable: Portable
    path: Path

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        return self.portable.config


Loaded = Callable[[Sequence[Checkpoint]], object]
"""A function that is called with checkpoints when they are loaded."""


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


def portable_part(payload: Mapping[str, Any]) -> Portable:
    """The portable part of the content of a checkpoint."""
    return read_portable(payload[PORTABLE])


def read_payload(path: Path, *, tensors: bool = True, parts: bool = True) -> dict[str, Any]:
    """Everything in the file; InputError unless it is a whole checkpoint of this framework.

    For settings alone, read without ``tensors`` (``read_archive``): it takes no time. Without
    ``parts``, tensors that several ranks have written in parts are not read (``read_parts``).
    """
    payload = read_archive(path, tensors=tensors)
    if not _is_ours(payload):
        raise InputError(f"{path} is not a checkpoint of this framework")
    if tensors and SHARDS in payload:
        from transformer.checkpoint.sharded import locate

        payload = locate(payload, path.parent)
        if parts:
            return read_parts(payload, path)
        with errors_name(path):
            numbers = sum(weight.shape.numel() for weight in {*payload["state_dict"].values()})
            validate_size(portable_part(payload).config.model, numbers)
        return payload
    with errors_name(path):
        model = portable_part(payload).config.model
        if tensors:
            validate_weights(model, payload)
    return payload


def _is_ours(payload: Any) -> bool:
    """Whether the values of a file have the portable part and named weights."""
    if not isinstance(payload, dict):
        return False
    portable = payload.get(PORTABLE)
    weights = payload.get("state_dict")
    return (
        isinstance(portable, dict)
        and "format" in portable
        and isinstance(weights, dict)
        and all(isinstance(name, str) for name in weights)
    )


def read_parts(payload: dict[str, Any], path: Path, scratch: Path | None = None) -> dict[str, Any]:
    """Read the tensors that ``read_payload`` left in parts; with ``scratch``, into mapped files."""
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

    scale = model.lora_alpha / model.lora_rank
    config = replace(portable.config, model=replace(model, lora_rank=0))
    merged = payload | {PORTABLE: replace(portable, config=config).to_plain()}
    with _weights_fit(path):
        for key in ("state_dict", "current_model_state"):
            if key in payload:
                merged[key] = merge_adapters(payload[key], scale)
    return merged


def find_last(path: Path, *, tensors: bool = True) -> tuple[Path, dict[str, Any]]:
    """Read a file, or the newest whole checkpoint of a run; raises InputError if there is none.

    Tensors that lie in parts are not read (``read_parts``). Without ``tensors``
    (``read_payload``), it may be a file whose tensors are damaged.
    """
    path = given_path(path)
    newest = find_checkpoint(path, LAST)
    previous = newest.with_name(f"{PREVIOUS}.ckpt")
    candidates = [newest]
    if not path.is_file() and previous.is_file():
        candidates.append(previous)
    damages = []
    for file in candidates:
        try:
            return file, read_payload(file, tensors=tensors, parts=False)
        except UnreadableFile:
            raise
        except InputError as error:
            damages.append(str(error))
    best = newest.with_name("best.ckpt")
    hint = f"; resume with checkpoint={best} from the best validation" if best.is_file() else ""
    raise InputError("; and ".join(dict.fromkeys(damages)) + hint)


def checkpoint_task(payload: Mapping[str, Any]) -> str:
    """The task of the run that wrote the checkpoint."""
    return portable_part(payload).config.task


def require_translation(payload: dict[str, Any], file: Path) -> None:
    """Raise InputError if the model is a tagger or a language model."""
    # A user's own task may be anything; a model without a decoder is refused when it is built.
    task = checkpoint_task(payload)
    if task in SINGLE_STACKS:
        raise InputError(
            f"{file} was trained for task={task}, not text to text; predict checkpoint=… "
            "takes new text, evaluate checkpoint=… split=test scores it"
        )


def load_weights(
    model: "Transformer | SingleStack", payload: dict[str, Any], file: Path, *, assign: bool = False
) -> None:
    """Load weights, with ``assign`` by reference, and set evaluation mode; or InputError."""
    # New adapters (LoRA) are in no checkpoint: they keep their values.
    weights = {name: tensor for name, tensor in model.state_dict().items() if ".lora_" in name}
    for name, tensor in payload["state_dict"].items():
        if name.startswith(WEIGHTS_PREFIX):
            weights[name.removeprefix(WEIGHTS_PREFIX)] = tensor
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
    """Build a model to load weights into; until then they take no memory (device ``meta``)."""
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


def write_payload(payload: Any, path: Path) -> None:
    """Write a checkpoint (``write_archive``); ``last.ckpt`` keeps the one before it."""
    previous = path.with_name(f"{PREVIOUS}.ckpt") if path.name == f"{LAST}.ckpt" else None
    write_archive(payload, path, previous)


def read_portable(values: Mapping[str, Any]) -> Portable:
    """The portable part of a checkpoint, typed and checked; raises InputError if it is wrong."""
    raise_objections(islice(_faults(values), 1))
    return Portable(run_config(values["config"]), values["tokenizer"], values["longest_source"])


def _faults(portable: Mapping[str, Any]) -> Iterator[str]:
    """Faults: values that training never writes. Later checks need the earlier ones to pass."""
    number = portable.get("format")
    if type(number) is not int or number != FORMAT:
        newer = type(number) is int and number > FORMAT
        shown = number if isinstance(number, int | str | None) else type(number).__name__
        yield (
            f"it has format {str(shown)[:20]!r}, this version reads format {FORMAT}; "
            f"{'install a newer version' if newer else 'train the model again'}"
        )
    for name in ("tokenizer", "config"):
        if not isinstance(portable.get(name), dict):
            yield f"it has no {name}, as every checkpoint has"
    if "longest_source" not in portable:
        yield "it has no longest_source, as every checkpoint has"
    longest = portable["longest_source"]
    if longest is not None and (type(longest) is not int or longest < 1):
        yield f"its longest_source is {str(longest)[:20]}, and must be a number of subwords"
    config: Mapping[str, Any] = portable["config"]
    for setting in fields(RunConfig):
        if setting.name not in config:
            yield f"its config has no {setting.name}, as every run has"
    yield from _odd_values(config, "")
    model = config["model"]
    for size in ("source_vocab_size", "target_vocab_size"):
        if isinstance(model, dict) and not model.get(size):
            yield f"its model has no {size}, as the model of every checkpoint has"


def _odd_values(node: Any, key: str) -> Iterator[str]:
    """Faults: tensors, NaN and infinity in a config."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _odd_values(name, key)
            yield from _odd_values(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _odd_values(value, key)
    elif isinstance(node, Tensor) or (isinstance(node, float) and not math.isfinite(node)):
        yield f"{key} in its config is no plain value"


def validate_weights(model: ModelConfig, payload: Mapping[str, Any]) -> None:
    """Raise InputError unless weights and moments are finite, and as many as the model declares."""
    weights = payload["state_dict"].values()
    if not all(isinstance(weight, Tensor) for weight in weights):
        raise InputError("a weight is no tensor")
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in weights}
    narrowest = min((t.element_size() for t in weights), default=1)
    validate_size(model, sum(storages.values()) // narrowest)
    values = tree_leaves([payload.get(key) for key in _FINITE])
    tensors = {value.data_ptr(): value for value in values if isinstance(value, Tensor)}
    if not all(all_finite(tensor) for tensor in tensors.values()):
        raise InputError("its weights hold NaN or infinity; use another checkpoint")


def all_finite(tensor: Tensor) -> bool:
    """Whether a tensor has neither NaN nor infinity; it is not copied."""
    return not tensor.numel() or all(bound.isfinite() for bound in tensor.aminmax())


def validate_size(model: ModelConfig, max_numbers: int) -> None:
    """Raise InputError if a model that is not yet built has more than ``max_numbers`` weights."""
    # A lower bound of the number of weights: attention has at least its queries and its output.
    layers = model.encoder_layers + model.decoder_layers
    attention = 2 * model.d_model * model.d_k * model.num_heads
    feed_forward = 2 * model.d_model * model.ffn_dim
    if model.has_own_layers:
        # A user's own layers may have fewer weights than ours.
        attention = 0
        feed_forward = 0
    shared = {"attention": attention, "feed_forward": feed_forward}.get(model.share_layers, 0)
    declared = attention + feed_forward - shared
    if model.share_layers != "all":
        declared *= layers
    declared += model.d_model * max(model.source_vocab_size, model.target_vocab_size)
    declared += model.lora_rank * model.d_model
    convolutions = 1 if model.share_layers == "all" else model.encoder_layers
    declared += 2 * model.d_model**2 * (model.convolution_window or 0) * convolutions
    if model.positions == "learned":
        declared += model.d_model * model.max_length
    if model.positions == "relative":
        declared += model.num_heads * model.relative_buckets
    if layers > _MAX_LAYERS or declared > max_numbers:
        raise InputError("it declares a larger model than its weights are; use another checkpoint")
