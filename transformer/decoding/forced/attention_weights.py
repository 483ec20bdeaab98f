"""The weights of every attention for given sources and targets, and what each query could see.

Teacher forcing: the decoder reads the given targets; attention is computed by the plain formula.
It does not know how the targets were found.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.data.batching.batch import Batch, Row, collate
from transformer.data.tokenization.tokenizer import EOS, PAD
from transformer.model.attention.bias import Mask
from transformer.model.attention.masks import padding_mask
from transformer.model.attention.record_weights import recording
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.transformer import Transformer


@dataclass(frozen=True)
class AttentionMaps:
    """The weights of every head, one tensor a layer, the first layer first.

    Each row sums to one over what its query may see. Row ``i`` of ``decoder`` and ``cross`` is the
    step that has read ``target_input[:i + 1]`` and predicts the token after it.
    """

    encoder: list[Float[Tensor, "batch head source source"]]
    decoder: list[Float[Tensor, "batch head target target"]]
    cross: list[Float[Tensor, "batch head target source"]]


@torch.inference_mode()
def attention_maps(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    target_input: Int[Tensor, "batch target"],
) -> AttentionMaps:
    """Compute every attention of the model, in the mode in which it is."""
    encoder = cast(Iterable[EncoderLayer], model.encoder.layers)
    decoder = list(cast(Iterable[DecoderLayer], model.decoder.layers))
    with (
        recording([layer.attention for layer in encoder]) as own_source,
        recording([layer.self_attention for layer in decoder]) as own_target,
        recording([layer.cross_attention for layer in decoder]) as cross,
    ):
        model(source, target_input)
    return AttentionMaps(own_source, own_target, cross)


@dataclass(frozen=True)
class Attended:
    """One kind of attention over a batch."""

    weights: list[Float[Tensor, "batch head query key"]]
    """One tensor a layer, the first layer first."""
    visible: Bool[Tensor, "batch query key"]
    """What each query may see; nothing at all where the query is padding."""
    separator: Bool[Tensor, "batch key"]
    """Where the end-of-sentence symbol stands among the keys."""


@dataclass(frozen=True)
class ForcedAttention:
    """All attention of a model over a batch; queries and keys as in ``AttentionMaps``."""

    batch: Batch
    encoder: Attended
    decoder: Attended
    cross: Attended


def forced_attention(
    model: Transformer, sources: Sequence[Row], targets: Sequence[Row]
) -> ForcedAttention:
    """Read pairs of piece ids (without bos or eos), in the mode in which the model is."""
    device = next(model.parameters()).device
    batch = collate(sources, targets).to(device)
    source, target = batch.source, batch.target_input
    maps = attention_maps(model, source, target)
    source_mask = padding_mask(source, PAD)
    encoder = model.encoder.attention_bias(source.size(1), 0, source_mask, device).dense_mask
    decoder = model.decoder.attention_bias(target.size(1), 0, None, device).dense_mask
    return ForcedAttention(
        batch,
        Attended(maps.encoder, _visible(source, source, encoder), source == EOS),
        Attended(maps.decoder, _visible(target, target, decoder), target == EOS),
        Attended(maps.cross, _visible(target, source, None), source == EOS),
    )


def _visible(query: Tensor, key: Tensor, mask: Mask | None) -> Bool[Tensor, "batch query key"]:
    """Real keys that the mask lets a real query see."""
    real = (query != PAD)[:, :, None] & (key != PAD)[:, None, :]
    # batch 1 query key -> batch query key; every pattern is the same for all heads
    return real if mask is None else real & mask[:, 0]
