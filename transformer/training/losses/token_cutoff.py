"""Cuts tokens out of the second of two passes: their embeddings become zero, their positions stay.

Shen et al. 2020, "A Simple but Tough-to-Beat Data Augmentation Approach" (token cutoff), as Gao et
al. 2022, "Bi-SimCut", simplified it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from transformer.data.tokenization.tokenizer import BOS, EOS, PAD
from transformer.model.transformer import Transformer


def drawn_cut(
    tokens: Int[Tensor, "rows length"], probability: float
) -> Bool[Tensor, "rows length"] | None:
    """Draw tokens to cut in the second half of the rows, no padding and no control symbols."""
    if probability == 0:
        return None
    cut = torch.rand(tokens.shape, device=tokens.device) < probability
    cut[: len(tokens) // 2] = False
    for control in (PAD, BOS, EOS):
        cut &= tokens != control
    return cut


@contextmanager
def cutting(
    model: Transformer,
    source: Bool[Tensor, "rows source"] | None,
    target: Bool[Tensor, "rows target"] | None,
) -> Iterator[None]:
    """Set the embeddings of these tokens of a model to zero; None cuts nothing."""
    with ExitStack() as handles:
        for side, cut in ((model.source_embedding, source), (model.target_embedding, target)):
            if cut is not None:
                handles.enter_context(side.token_dropout.register_forward_hook(partial(_zero, cut)))
        yield


def _zero(cut: Tensor, module: nn.Module, given: object, embedded: Tensor) -> Tensor:
    return embedded.masked_fill(cut[..., None], 0.0)
