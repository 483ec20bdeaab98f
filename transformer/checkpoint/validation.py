"""Validates a checkpoint: format, model, groups of the config, weights that fit the model."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from transformer.common.errors import InputError, raise_objections
from transformer.common.version import VERSION
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig, run_config, stored_values

FORMAT = 9
"""Format of the portable part; other formats are rejected."""

_WITH_WEIGHTS = ("state_dict", "current_model_state", "optimizer_states")
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


def read_portable(values: Mapping[str, Any]) -> Portable:
    """The portable part of a checkpoint, typed and checked; raises InputError if it is wrong."""
    raise_objections(islice(_faults(values), 1))
    return Portable(run_config(values["config"]), values["tokenizer"], values["longest_source"])


def _faults(portable: Mapping[str, Any]) -> Iterator[str]:
    """Faults: values that training never writes. Later checks need the earlier ones to pass."""
    written = portable.get("format")
    if type(written) is not int or written != FORMAT:
        newer = type(written) is int and written > FORMAT
        shown = written if isinstance(written, int | str | None) else type(written).__name__
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
    """Tensors and NaN."""
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
    raise_objections("a weight is no tensor" for each in weights if not isinstance(each, Tensor))
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in weights}
    narrowest = min((t.element_size() for t in weights), default=1)
    validate_size(model, sum(storages.values()) // narrowest)
    values = tree_leaves([payload.get(part) for part in _WITH_WEIGHTS])
    tensors = {value.data_ptr(): value for value in values if isinstance(value, Tensor)}
    raise_objections(
        "its weights hold NaN or infinity; use another checkpoint"
        for tensor in tensors.values()
        if not all_finite(tensor)
    )


def all_finite(tensor: Tensor) -> bool:
    """Whether a tensor has neither NaN nor infinity; it is not copied."""
    return not tensor.numel() or all(bound.isfinite() for bound in tensor.aminmax())


def validate_size(model: ModelConfig, max_numbers: int) -> None:
    """Raise InputError if a model that is not yet built has more than ``max_numbers`` weights."""
    layers = model.encoder_layers + model.decoder_layers
    attention = 2 * model.d_model * model.d_k * model.num_heads
    feed_forward = 2 * model.d_model * model.ffn_dim
    if model.has_own_layers:
        # A user's own layers may have fewer weights than ours.
        attention = feed_forward = 0
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
