"""What a checkpoint must hold to be read: format, model, config, weights that fit the model.

Of the config, it checks that every group is there, with plain values; the class that reads a
group checks the values.
"""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.model.config import ModelConfig

FORMAT = 8
"""Format of the portable part; every other is refused."""

GROUPS = (
    *("data", "tokenizer", "model", "loss", "optimizer", "schedule", "recovery", "trainer"),
    *("callbacks", "logger", "decoding", "metrics"),
)
"""Groups in the config of every run."""

_WITH_WEIGHTS = ("state_dict", "current_model_state", "optimizer_states")
_MAX_LAYERS = 1_000


def validate_portable(portable: Mapping[str, Any]) -> ModelConfig:
    """Check ``checkpoint.portable_part`` of a checkpoint, and return its model.

    Raises InputError if a part or group is missing, of another format, or not plain.
    """
    found = portable.get("format")
    if type(found) is not int or found != FORMAT:
        newer = type(found) is int and found > FORMAT
        shown = found if isinstance(found, int | str | None) else type(found).__name__
        raise InputError(
            f"it has format {str(shown)[:20]!r}, this version reads format {FORMAT}; "
            f"{'install a newer version' if newer else 'train the model again'}"
        )
    for name in ("model", "tokenizer", "config"):
        if not isinstance(portable.get(name), dict):
            raise InputError(f"it has no {name}, as every checkpoint has")
    config: Mapping[str, Any] = portable["config"]
    for group in GROUPS:
        if not isinstance(config.get(group), dict):
            raise InputError(f"its config has no group {group}, as every run has")
    if not isinstance(config.get("task"), str):
        raise InputError("its config names no task")
    _check_plain_values(config, "")
    utility = config["decoding"].get("utility", "")
    # The import name of a metric is for the user alone to give: importing runs code.
    if not isinstance(utility, str) or ":" in utility:
        raise InputError(
            f"it names a program, decoding.utility={str(utility)[:80]}, as no checkpoint that "
            "this framework writes does; do not trust it"
        )
    model = typed(ModelConfig, portable["model"], "model")
    for key, value in config["model"].items():
        if portable["model"].get(key) != value:
            raise InputError(f"model.{key} is {value} in its config, and another in its model")
    return model


def validate_weights(model: ModelConfig, payload: Mapping[str, Any]) -> None:
    """Raise InputError unless the weights are as many as the model declares, and finite.

    The moments of the optimiser must be finite too.
    """
    weights = payload["state_dict"].values()
    if not all(isinstance(tensor, Tensor) for tensor in weights):
        raise InputError("a weight is no tensor")
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in weights}
    narrowest = min((t.element_size() for t in weights), default=1)
    validate_size(model, sum(storages.values()) // narrowest)
    values = tree_leaves([payload.get(part) for part in _WITH_WEIGHTS])
    tensors = {value.data_ptr(): value for value in values if isinstance(value, Tensor)}
    if not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise InputError("its weights hold NaN or infinity; use another checkpoint")


def validate_size(model: ModelConfig, max_numbers: int) -> None:
    """Raise InputError if a model that is not yet built has more than ``max_numbers`` weights."""
    layers = model.encoder_layers + model.decoder_layers
    attention = 2 * model.d_model * model.d_k * model.num_heads
    feed_forward = 2 * model.d_model * model.ffn_dim
    if model.encoder_layer or model.decoder_layer or model.feed_forward:
        # Layers of a user may have fewer weights than ours.
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


def _check_plain_values(node: Any, key: str) -> None:
    """Raise InputError for tensors, NaN, and texts in which OmegaConf replaces something."""
    if isinstance(node, dict):
        for name, value in node.items():
            _check_plain_values(name, key)
            _check_plain_values(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list | tuple):
        for value in node:
            _check_plain_values(value, key)
    elif isinstance(node, str) and "${" in node:
        raise InputError(
            f"{key} in its config holds ${{…}}, which would be replaced by something of this "
            "machine; no checkpoint that this framework writes does; do not trust it"
        )
    elif isinstance(node, Tensor) or (isinstance(node, float) and not math.isfinite(node)):
        raise InputError(f"{key} in its config is no plain value")
