"""Where the model looked: the weights of every attention for given sources and targets.

It computes them afresh, by the plain formula, and does not know how the targets were found.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
