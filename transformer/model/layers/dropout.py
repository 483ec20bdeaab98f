"""Dropout (Srivastava et al. 2014), of elements and of tokens.

On a CPU a draw of the generator costs more than the product with the mask. One draw of 64 bits
therefore gives a byte each to eight elements.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

HiddenStates = Float[Tensor, "batch length width"]
"""Hidden states between the blocks of a model."""

_LEVELS = 256


class Dropout(nn.Module):
    """Zeroes random elements and scales up the rest, in training; the identity in evaluation.

    On a CPU the probability is rounded to a multiple of 1/256 below 1. The scale follows from the
    rounded probability, so that the expectation stays the same.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, hidden: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        if not self.training or self.probability == 0:
            return hidden
        if hidden.device.type != "cpu" or torch.compiler.is_compiling():
            # A compiled mask is cheap, and torch.compile cannot trace the view of bytes.
            return F.dropout(hidden, self.probability)
        dropped = min(round(self.probability * _LEVELS), _LEVELS - 1)
        # In place, the result stays bytes, 1 or 0: booleans take torch 20 times as long.
        keep = random_bytes(hidden.numel()).ge_(dropped).view(hidden.shape)
        return hidden * keep.to(hidden.dtype).mul_(_LEVELS / (_LEVELS - dropped))


class TokenDropout(Dropout):
    """Zeroes the embeddings of random tokens and scales up the rest, in training.

    Each position is drawn independently, also the end symbol, as in Nematus. Gal and Ghahramani
    2016 drop all occurrences of a word in a sentence; Sennrich et al. 2016 (WMT 16) translate with
    it.
    """

    def forward(self, embedded: HiddenStates) -> HiddenStates:
        if not self.training or self.probability == 0:
            return embedded
        # batch length width -> batch length 1
        return embedded * F.dropout(torch.ones_like(embedded[..., :1]), self.probability)


def random_bytes(count: int) -> Tensor:
    """Independent uniform bytes from torch's generator of the CPU, as uint8."""
    words = torch.empty((count + 7) // 8, dtype=torch.int64)
    # None stands for one above the largest value: every pattern of 64 bits is as likely.
    return words.random_(-(2**63), None).view(torch.uint8)[:count]
