"""What a checkpoint must hold to be read: the parts, the model, weights that are the model's.

It knows the names of the groups of a run's config, and that their values are plain; what each
value means, the class that reads the group knows.
"""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.model.checkpoint.migrations import GROUPS
from transformer.model.config import ModelConfig

WITH_WEIGHTS = ("state_dict", "current_model_state", "optimizer_states")
"""Parts of a checkpoint that hold weights, or a number for each."""

_MAX_LAYERS = 1_000


def validate_portable(portable: Mapping[str, Any]) -> ModelConfig:
    """Refuse a portable part, of today's format, that no training wrote; returns its model.

    Args:
        portable: See ``checkpoint.portable_part``.

    Raises:
        InputError: A part or group is missing or of another kind, or a value is not plain.
    """
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
    _check_pickle(config)
    model = typed(ModelConfig, portable["model"], "model")
    for key, value in config["model"].items():
        if portable["model"].get(key) != value:
            raise InputError(f"model.{key} is {value} in its config, and another in its model")
    return model


def validate_weights(model: ModelConfig, payload: Mapping[str, Any]) -> None:
    """Refuse weights that are fewer than the model declares, and what is not finite.

    Args:
        model: The model that the weights are of.
        payload: All that a checkpoint holds.

    Raises:
        InputError: There are such weights, or moments of the optimiser.
    """
    weights = payload["state_dict"].values()
    if not all(isinstance(tensor, Tensor) for tensor in weights):
        raise InputError("a weight is no tensor")
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in weights}
    narrowest = min((t.element_size() for t in weights), default=1)
    validate_size(model, sum(storages.values()) // narrowest)
    seen = set()
    waiting = [payload.get(part) for part in WITH_WEIGHTS]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting += node.values()
        elif isinstance(node, list | tuple):
            waiting += node
        elif isinstance(node, Tensor) and node.data_ptr() not in seen:
            seen.add(node.data_ptr())
            if not node.isfinite().all():
                raise InputError("its weights hold NaN or infinity; use another checkpoint")


def validate_size(model: ModelConfig, held: int) -> None:
    """Refuse a model that declares more than its weights hold, before it is built.

    Args:
        model: What is declared.
        held: Numbers that the weights have at most.

    Raises:
        InputError: It does.
    """
    layers = model.encoder_layers + model.decoder_layers
    attention = 2 * model.d_model * model.d_k * model.num_heads
    feed_forward = 2 * model.d_model * model.ffn_dim
    shared = {"attention": attention, "feed_forward": feed_forward}.get(model.share_layers, 0)
    declared = attention + feed_forward - shared
    if model.share_layers != "all":
        declared *= layers
    declared += model.d_model * max(model.source_vocab_size, model.target_vocab_size)
    if model.positions == "learned":
        declared += model.d_model * model.max_length
    if model.positions == "relative":
        declared += model.num_heads * model.relative_buckets
    if layers > _MAX_LAYERS or declared > held:
        raise InputError("it declares a larger model than its weights are; use another checkpoint")


def _check_plain_values(node: Any, key: str) -> None:
    """Refuse a config that is more than values: what OmegaConf would replace, tensors, NaN.

    Raises:
        InputError: It is.
    """
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


def _check_pickle(config: Mapping[str, Any]) -> None:
    """A metric by its import name is the user's to give: a file that names one could run it.

    Raises:
        InputError: The config names one.
    """
    utility = config["decoding"].get("utility", "")
    if not isinstance(utility, str) or ":" in utility:
        raise InputError(
            f"it names a program, decoding.utility={str(utility)[:80]}, as no checkpoint that "
            "this framework writes does; do not trust it"
        )
