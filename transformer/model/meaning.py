"""Which architectures mean something: the others are refused, with the reason.

It does not build anything, and knows of a config only the names of its fields.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Literal, get_args, get_origin, get_type_hints

from transformer.common.errors import refuse

if TYPE_CHECKING:
    from transformer.model.config import ModelConfig


def refuse_meaningless(config: "ModelConfig") -> None:
    """Raise what there is to object to; what follows from a wrong value alone is left out.

    Raises:
        InputError: A value is unknown or out of its range, or two contradict each other.
    """
    for objections in (_choices, _ranges, _heads, _positions, _kernel, _embeddings):
        refuse(objections(config))


def _choices(config: "ModelConfig") -> Iterator[str]:
    hints = get_type_hints(type(config))
    for name in (field.name for field in fields(config)):
        options = [hint for hint in (hints[name], *get_args(hints[name])) if _is_choice(hint)]
        value = getattr(config, name)
        if options and value is not None and value not in get_args(options[0]):
            yield f"model.{name}={value} is unknown; choose {' or '.join(get_args(options[0]))}"


def _is_choice(hint: object) -> bool:
    return get_origin(hint) is Literal


def _ranges(config: "ModelConfig") -> Iterator[str]:
    least = {
        **dict.fromkeys(("d_model", "num_heads", "num_kv_heads", "head_dim", "ffn_dim"), 1),
        **{"encoder_layers": 1, "decoder_layers": 0, "max_length": 1},
        **_used_by_patterns(config),
    }
    for name, smallest in least.items():
        value = getattr(config, name)
        if value is not None and value < smallest:
            yield f"model.{name}={value} must be at least {smallest}"
        if value is not None and value >= 2**31:
            yield f"model.{name}={value} must be below {2**31}"
    if "strided" in _patterns(config) and config.window == 1:
        yield "model.window=1 lets model.pattern=strided see everything; take 2 or more, or full"
    token_dropouts = ("source_token_dropout", "target_token_dropout")
    dropouts = ("dropout", "attention_dropout", "activation_dropout", *token_dropouts)
    for name in (*dropouts, "layer_drop"):
        if not 0 <= getattr(config, name) < 1:
            yield f"model.{name}={getattr(config, name)} must be in [0, 1)"


def _patterns(config: "ModelConfig") -> set[str]:
    return {config.pattern, config.decoder_pattern or config.pattern}


def _used_by_patterns(config: "ModelConfig") -> dict[str, int]:
    """The least values of what the patterns read."""
    least = {"window": 1} if _patterns(config) != {"full"} else {}
    if _patterns(config) & {"longformer", "bigbird"}:
        least["global_tokens"] = 1
    if "bigbird" in _patterns(config):
        least |= {"random_blocks": 1, "random_block_size": 1}
    return least


def _heads(config: "ModelConfig") -> Iterator[str]:
    if config.head_dim is None and config.d_model % config.num_heads:
        yield (
            f"model.d_model={config.d_model} is not a multiple of model.num_heads="
            f"{config.num_heads}; the heads share the width equally, unless model.head_dim is set"
        )
    if config.num_kv_heads is not None and config.num_heads % config.num_kv_heads:
        yield (
            f"model.num_kv_heads={config.num_kv_heads} does not divide model.num_heads="
            f"{config.num_heads}; each head of keys serves equally many heads of queries"
        )


def _positions(config: "ModelConfig") -> Iterator[str]:
    if config.positions == "sinusoidal" and config.d_model % 2:
        yield f"model.d_model={config.d_model} must be even for sinusoidal positions"
    if config.positions == "rotary" and config.d_k % 2:
        yield f"a head of width {config.d_k} must be even for rotary positions, which turn pairs"
    if config.positions == "relative":
        if config.relative_buckets < 4 or config.relative_buckets % 4:
            yield (
                f"model.relative_buckets={config.relative_buckets} must be a multiple of 4: two "
                "directions, and in each near and far"
            )
        if config.relative_max_distance <= config.relative_buckets // 2:
            yield (
                f"model.relative_max_distance={config.relative_max_distance} must be more than "
                f"half of model.relative_buckets={config.relative_buckets}, or no bucket is left "
                "for what is far"
            )


def _kernel(config: "ModelConfig") -> Iterator[str]:
    if config.sdpa_backend != "any" and config.attention != "sdpa":
        yield (
            f"model.sdpa_backend={config.sdpa_backend} is a kernel of model.attention=sdpa, "
            f"not of {config.attention}"
        )
    if config.attention == "flex" and config.attention_dropout:
        yield (
            f"model.attention=flex drops no weights; set model.attention_dropout=0, not "
            f"{config.attention_dropout}, or choose sdpa"
        )


def _embeddings(config: "ModelConfig") -> Iterator[str]:
    if config.tie_embeddings == "all" and config.source_vocab_size != config.target_vocab_size:
        yield (
            "model.tie_embeddings=all needs one vocabulary for both sides; "
            "set tokenizer.joint=true or model.tie_embeddings=decoder"
        )
