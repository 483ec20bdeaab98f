"""Where the decoder looked in the source: the weights of its cross-attention.

It computes them afresh for given targets and does not know how these were found.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.model.decoder import DecoderLayer
from transformer.model.transformer import Transformer


@torch.inference_mode()
def cross_attention(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    target_input: Int[Tensor, "batch target"],
) -> list[Float[Tensor, "batch head target source"]]:
    """Compute the cross-attention weights of every decoder layer, the first layer first.

    Row ``i`` is what the decoder attended to when it had read ``target_input[:i + 1]`` and
    predicted the token after it; each row sums to one over the real source tokens.
    """
    cache = model.start(model.encode(source))
    attentions = [cast(DecoderLayer, layer).cross_attention for layer in model.decoder.layers]
    queries: dict[int, Tensor] = {}

    def remember(place: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            [queries[place]] = inputs

        return hook

    handles = [
        attention.query.register_forward_pre_hook(remember(place))
        for place, attention in enumerate(attentions)
    ]
    try:
        model.decode(target_input, cache)
    finally:
        for handle in handles:
            handle.remove()
    return [
        attention.weights(queries[place], layer.cross_keys, cache.mask)
        for place, (attention, layer) in enumerate(zip(attentions, cache.layers, strict=True))
    ]


def word_attention(
    model: Transformer,
    source: Int[Tensor, "batch source"],
    target_input: Int[Tensor, "batch target"],
) -> Float[Tensor, "batch target source"]:
    """Average the heads of the last layer but one (of the last where it is the only one).

    Of all layers it comes nearest to word alignment: Garg et al. 2019, "Jointly Learning to
    Align and Translate with Transformer Models", section 3.
    """
    layers = cross_attention(model, source, target_input)
    return layers[max(0, len(layers) - 2)].mean(dim=1)
