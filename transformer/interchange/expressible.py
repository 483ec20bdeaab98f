"""The models that other programs have; others are refused by name."""

from typing import Any

from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import EOS
from transformer.model.config import ModelConfig
from transformer.model.heads import heads_off
from transformer.model.transformer import Transformer

_FULL: dict[str, tuple[Any, ...]] = {
    "pattern": ("full",),
    "decoder_pattern": ("full", None),
    "query_key_norm": (False,),
    "convolution_window": (None,),
    **dict.fromkeys(("encoder_layer", "decoder_layer", "feed_forward"), (None,)),
}
_LAYERS = {
    **_FULL,
    "norm": ("layer",),
    "activation": ("relu", "gelu", "swish"),
    "num_kv_heads": (None,),
}
EXPRESSIBLE: dict[str, dict[str, tuple[Any, ...]]] = {
    "CTranslate2": {
        **_FULL,
        "norm_order": ("pre", "post"),
        "positions": ("sinusoidal", "learned", "rotary"),
        "decoder_start": (None,),
    },
    "Marian or Pegasus": {
        **_LAYERS,
        "norm_order": ("post", "pre"),
        "positions": ("sinusoidal",),
        "decoder_start": (None,),
        "tie_embeddings": ("all", "decoder"),
    },
    "M2M-100": {
        **_LAYERS,
        "norm_order": ("pre",),
        "positions": ("fairseq",),
        "decoder_start": (EOS,),
        "tie_embeddings": ("all",),
    },
}
"""For each program, the values of these settings that it has; it has all values of the others."""


def check_heads(model: Transformer) -> None:
    """Raise InputError if heads are switched off: this is no part of the weights."""
    if off := heads_off(model):
        raise InputError(
            f"an export has all heads, {off[0]} too; leave out heads_off=, and use it with the "
            "exported model"
        )


def check_expressible(config: ModelConfig, program: str) -> None:
    """Raise InputError if a program of EXPRESSIBLE does not have such a model."""
    for name, values in EXPRESSIBLE[program].items():
        if (value := getattr(config, name)) not in values:
            known = " or ".join("null" if v is None else str(v) for v in values)
            fits = value in EXPRESSIBLE["CTranslate2"].get(name, (value,))
            first = "null" if values[0] is None else values[0]
            raise InputError(
                f"model.{name}={value} cannot be expressed in {program}, only {known}; train with "
                f"model.{name}={first}, or export with "
                f"format={'ctranslate2 or ' if fits else ''}safetensors"
            )
