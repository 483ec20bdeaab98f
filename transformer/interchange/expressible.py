"""Which models other programs have; the rest is refused by name."""

from typing import Any

from transformer.common.errors import InputError
from transformer.model.config import ModelConfig

_FULL: dict[str, tuple[Any, ...]] = {
    "pattern": ("full",),
    "decoder_pattern": ("full", None),
    "query_key_norm": (False,),
}
EXPRESSIBLE = {
    "CTranslate2": {
        **_FULL,
        "norm_order": ("pre", "post"),
        "positions": ("sinusoidal", "learned", "rotary"),
    },
    "Marian or Pegasus": {
        **_FULL,
        "norm_order": ("post", "pre"),
        "norm": ("layer",),
        "positions": ("sinusoidal",),
        "activation": ("relu", "gelu", "swish"),
        "num_kv_heads": (None,),
        "tie_embeddings": ("all", "decoder"),
    },
}
"""By the program, the values of these settings that it has; it has all values of the rest."""


def check_expressible(config: ModelConfig, program: str) -> None:
    """Check that a program of EXPRESSIBLE has such a model; raises InputError if not."""
    for name, values in EXPRESSIBLE[program].items():
        if (value := getattr(config, name)) not in values:
            known = " or ".join("null" if v is None else str(v) for v in values)
            raise InputError(
                f"model.{name}={value} cannot be expressed in {program}, only {known}; train with "
                f"model.{name}={values[0]}, or export to another format"
            )
