"""The element-wise part of the losses, by the formula, as kernels that ``torch.compile`` makes.

The logits may be bfloat16; the arithmetic is float32.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

PassWeights = tuple[float, float]


def fused_cross_entropy(
    logits: Float[Tensor, "token vocab"], right: Int[Tensor, "token 1"], smoothing: float
) -> Float[Tensor, ""]:
    """The smoothed cross-entropy, summed; its gradient overwrites the logits, of any dtype."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    hit = torch.arange(logits.size(-1), device=logits.device) == right
    log_z = exact.logsumexp(-1, keepdim=True)
    surprise = log_z - torch.where(hit, exact, 0).sum(-1, keepdim=True)
    spread = log_z - exact.mean(-1, keepdim=True)
    expected = smoothing / logits.size(-1) + (1 - smoothing) * hit
    logits.copy_((exact - log_z).exp() - expected)
    return ((1 - smoothing) * surprise + smoothing * spread).sum()


def fused_consistency(
    logits: Float[Tensor, "2 token vocab"],
    right: Int[Tensor, "token 1"],
    smoothing: float,
    cross_entropy: PassWeights,
    divergence: PassWeights,
    weight: float,
) -> Float[Tensor, " 2"]:
    """Sums of cross-entropy and divergence by ``Terms``; the gradient overwrites the logits."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_p, log_q = exact.log_softmax(-1)
    p, q, difference = log_p.exp(), log_q.exp(), log_p - log_q
    hit = torch.arange(logits.size(-1), device=logits.device) == right
    expected = smoothing / logits.size(-1) + (1 - smoothing) * hit
    ahead = (p * difference).sum(-1, keepdim=True)
    back = -(q * difference).sum(-1, keepdim=True)
    first, second = cross_entropy
    u, v = weight * divergence[0], weight * divergence[1]
    entropy = -(expected * (first * log_p + second * log_q)).sum()
    logits[0].copy_(p * (first + v + u * (difference - ahead)) - v * q - first * expected)
    logits[1].copy_(q * (second + u - v * (difference + back)) - u * p - second * expected)
    return torch.stack([entropy, divergence[0] * ahead.sum() + divergence[1] * back.sum()])


@cache
def compiled_loss(function: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    """One of these functions, compiled for any number of tokens."""
    return torch.compile(function, dynamic=True, **options)
