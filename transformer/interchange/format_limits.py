"""Refuses models that another program does not have."""

from collections.abc import Mapping
from typing import Any

from transformer.common.errors import InputError
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.scaled_dot_product import attend_with_weights
from transformer.model.head_masks import heads_off
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig

Values = Mapping[str, tuple[Any, ...]]
"""For keys under ``model.``, the values that a program has; it has all values of other keys."""

_FULL: Values = {
    "pattern": ("full",),
    "decoder_pattern": ("full", None),
    "query_key_norm": (False,),
    "convolution_window": (None,),
    **dict.fromkeys(("encoder_layer", "decoder_layer", "feed_forward"), (None,)),
}
CTRANSLATE2: Values = {
    **_FULL,
    "norm_order": ("pre", "post"),
    "positions": ("sinusoidal", "learned", "rotary", "relative"),
    "decoder_start": (None,),
}
ONNX: Values = {name: values for name, values in _FULL.items() if name != "query_key_norm"}
TRANSFORMERS: Values = {**_FULL, "num_kv_heads": (None,)}
"""Of all architectures; each has settings of its own (``architectures/architecture.py``)."""


def check_heads(model: Transformer) -> None:
    """Raise InputError if heads are switched off: this is no part of the weights."""
    if off := heads_off(model):
        raise InputError(
            f"an export has all heads, {off[0]} too; leave out heads_off=, and use it with the "
            "exported model"
        )


def check_formula(model: Transformer, program: str) -> None:
    """Raise InputError if an attention computes another formula than the paper's."""
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention) and module.formula is not attend_with_weights:
            raise InputError(
                f"the formula of {name} cannot be expressed in {program}; export with format=onnx"
            )


def check_expressible(config: ModelConfig, program: str, has: Values) -> None:
    """Raise InputError if a program does not have such a model."""
    for name, values in has.items():
        if (value := getattr(config, name)) not in values:
            known = ["null" if one is None else str(one) for one in values]
            fits = value in CTRANSLATE2.get(name, (value,))
            raise InputError(
                f"model.{name}={value} cannot be expressed in {program}, only "
                f"{' or '.join(known)}; train with model.{name}={known[0]}, or export with "
                f"format={'ctranslate2 or ' if fits else ''}safetensors"
            )
