"""Names of heads, which can be switched off (Michel et al. 2019, section 2.3)."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

from transformer.common.errors import InputError
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.transformer import Transformer

Kind = Literal["encoder", "decoder", "cross"]
"""Self-attention of the encoder, self-attention of the decoder, cross-attention."""


class HeadName(NamedTuple):
    """``KIND.LAYER.HEAD``, layer and head counted from 0, as in ``cross.1.2``."""

    kind: Kind
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}.{self.head}"


def head_name(text: str) -> HeadName | None:
    """Parse ``KIND.LAYER.HEAD``; None if the text does not have this form."""
    parts = re.fullmatch(r"(encoder|decoder|cross)\.(\d{1,9})\.(\d{1,9})", text, re.ASCII)
    if parts is None:
        return None
    return HeadName(cast(Kind, parts[1]), int(parts[2]), int(parts[3]))


def attentions(model: Transformer) -> dict[Kind, list[MultiHeadAttention]]:
    """The attentions of each kind, layer by layer; shared ones repeat, recurrences have none."""
    encoder = cast(Iterable[EncoderLayer], model.encoder.layers)
    decoder = list(cast(Iterable[DecoderLayer], model.decoder.layers))
    stacks: dict[Kind, list[Any]] = {
        "encoder": [layer.attention for layer in encoder],
        "decoder": [layer.self_attention for layer in decoder],
        "cross": [layer.cross_attention for layer in decoder],
    }
    if not isinstance(decoder[0].self_attention, MultiHeadAttention):
        del stacks["decoder"]
    return stacks


def attention_heads(model: Transformer) -> list[HeadName]:
    """Every head once, by its first layer; of shared keys and values each query head counts."""
    return [
        HeadName(kind, layer, head)
        for kind, stack in attentions(model).items()
        for layer, attention in enumerate(stack)
        if stack.index(attention) == layer
        for head in range(model.config.num_heads)
    ]


def parse_heads(model: Transformer, names: Iterable[str]) -> list[HeadName]:
    """Parse names of heads of this model, each once and in order, or raise InputError."""
    known = attention_heads(model)
    wanted = set(names)
    unknown = wanted - {str(head) for head in known}
    if unknown:
        raise InputError(
            f"{min(unknown)[:40]!r} is no head of this model; write encoder.LAYER.HEAD, "
            f"decoder.LAYER.HEAD or cross.LAYER.HEAD, up to {known[-1]}; layers that share their "
            "attention have the name of the first"
        )
    return [head for head in known if str(head) in wanted]


def switch_off(model: Transformer, names: Iterable[HeadName]) -> None:
    """Switch these heads off, so that they add nothing, in training too, and the rest on."""
    stacks = attentions(model)
    for stack in stacks.values():
        for attention in stack:
            attention.head_mask = None
    for name in names:
        attention = stacks[name.kind][name.layer]
        if attention.head_mask is None:
            attention.head_mask = attention.output.weight.new_full((model.config.num_heads,), 1.0)
        attention.head_mask[name.head] = 0.0


def heads_off(model: Transformer) -> list[HeadName]:
    """The heads that are switched off."""
    stacks = attentions(model)
    masks = {name: stacks[name.kind][name.layer].head_mask for name in attention_heads(model)}
    return [name for name, mask in masks.items() if mask is not None and mask[name.head] == 0]


@contextmanager
def switched_off(model: Transformer, names: Iterable[HeadName]) -> Iterator[None]:
    """Switch these heads off within the context, besides those already off."""
    before = heads_off(model)
    switch_off(model, [*before, *names])
    try:
        yield
    finally:
        switch_off(model, before)
