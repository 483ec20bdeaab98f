"""A head learns the word alignment (Garg et al. 2019, section 4.2; Chen et al. 2016)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from transformer.model.attention.record_weights import recording
from transformer.model.decoder import DecoderLayer
from transformer.model.head_masks import HeadName
from transformer.model.transformer import Transformer


@contextmanager
def watching(
    model: Transformer, head: HeadName
) -> Iterator[list[Float[Tensor, "batch target source"]]]:
    """List the weights of a cross-attention head at each run, unless layer drop skips its layer."""
    layers = cast(Iterable[DecoderLayer], model.decoder.layers)
    attentions = [decoder_layer.cross_attention for decoder_layer in layers]
    guided = attentions[head.layer]
    # Shared layers are one module: count its calls for earlier layers.
    earlier = sum(attention is guided for attention in attentions[: head.layer])
    recorded: list[Tensor] = []
    with recording([guided]) as weights:
        yield recorded
    if len(weights) > earlier:
        # batch head target source -> batch target source
        recorded.append(weights[earlier][:, head.head])


def alignment_loss(
    weights: Float[Tensor, "batch target source"], links: Bool[Tensor, "batch target source"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Cross-entropy between the links of each target token and the attention of a head.

    The links of a token are a uniform distribution over its source tokens. Query ``t`` is the step
    that predicts token ``t``. Returns the sum over the linked tokens, in nats, and their number.
    The training module divides the sum by the number of all target tokens of the update (Garg et
    al., equation 5).
    """
    linked = links.any(-1)
    count = links.sum(-1).clamp_min(1)
    negative_log = -weights.float().clamp_min(torch.finfo(torch.float32).tiny).log()
    loss = (negative_log * links).sum(-1) / count
    return loss.sum(), linked.sum().float()
