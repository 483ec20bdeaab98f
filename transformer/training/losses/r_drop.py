"""Consistency of two passes under different dropout: R-Drop (Liang et al. 2021, eq. 2-4)."""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.settings.training import LossConfig
from transformer.training.losses.cross_entropy import (
    FusedLoss,
    LogitsFormula,
    Scalar,
    Target,
    Weight,
    compiled_loss,
)

Passes = Float[Tensor, "2 token width"]


class RDropLoss(NamedTuple):
    """Sums over the tokens, in nats."""

    loss: Scalar
    """Cross-entropy and weighted divergence; only this sum has a gradient."""
    cross_entropy: Scalar
    divergence: Scalar


def plain_r_drop_loss(
    hidden: Passes, weight: Weight, target: Target, label_smoothing: float, alpha: float
) -> RDropLoss:
    """Compute the loss by the formula; the arguments are those of ``cross_entropy``.

    The paper adds up the cross-entropies of both passes and alpha times the mean of KL(p || q) and
    KL(q || p), p and q being their predictions. Here the sum is halved, so that learning rate,
    clipping and ``train/loss`` keep their meaning. The gradient flows through both p and q, as in
    the authors' code.
    """
    logits = F.linear(hidden, weight)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # 2 token vocab -> (2 token) vocab
    entropy = F.cross_entropy(
        logits.flatten(0, 1), target.repeat(2), reduction="sum", label_smoothing=label_smoothing
    )
    entropy = entropy / 2
    log_p, log_q = logits.log_softmax(-1)
    # KL(p || q) + KL(q || p) is the sum of (p - q) (log p - log q).
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2
    loss = entropy + alpha / 2 * divergence
    return RDropLoss(loss, entropy.detach(), divergence.detach())


def _formula(
    logits: Float[Tensor, "2 token vocab"],
    target: Int[Tensor, "token 1"],
    mean: Float[Tensor, "2 token 1"],
    smoothing: float,
    alpha: float,
) -> Float[Tensor, " 2"]:
    """The sums of cross-entropy and divergence; the gradient of the loss overwrites the logits.

    With d = a - b the difference of the logits, which is log p - log q but for a constant a token:

        dL/da = p (1/2 + alpha/4 (1 + d - E_p d)) - alpha/4 q - target/2
        dL/db = q (1/2 + alpha/4 (1 - d + E_q d)) - alpha/4 p - target/2
    """
    part = alpha / 4
    target = target.expand(2, -1, -1)
    target_logit = logits.gather(-1, target)
    top = logits.amax(-1, keepdim=True)
    softmax = logits.softmax(-1)
    # The largest probability is exp(top - top) / Z.
    log_z = top - softmax.amax(-1, keepdim=True).log()
    difference = logits[0] - logits[1]
    # E_p d and E_q d.
    under_p, under_q = torch.linalg.vecdot(softmax, difference)[..., None]
    grad = torch.empty_like(logits)
    torch.add(0.5 + part - part * under_p, difference, alpha=part, out=grad[0])
    torch.add(0.5 + part + part * under_q, difference, alpha=-part, out=grad[1])
    grad.mul_(softmax).sub_(smoothing / 2 / logits.size(-1))
    grad[0].sub_(softmax[1], alpha=part)
    grad[1].sub_(softmax[0], alpha=part)
    grad.scatter_add_(-1, target, grad.new_full(target.shape, (smoothing - 1) / 2))
    logits.copy_(grad)
    entropy = (log_z - (1 - smoothing) * target_logit - smoothing * mean).sum() / 2
    return torch.stack([entropy, (under_p - under_q).sum() / 2])


def fused_consistency(
    logits: Float[Tensor, "2 token vocab"],
    target: Int[Tensor, "token 1"],
    smoothing: float,
    alpha: float,
) -> Float[Tensor, " 2"]:
    """As ``_formula``, by the formula of the paper, for ``torch.compile``; in float32."""
    part = alpha / 4
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_p, log_q = exact.log_softmax(-1)
    p = log_p.exp()
    q = log_q.exp()
    difference = log_p - log_q
    is_target = torch.arange(logits.size(-1), device=logits.device) == target
    expected = smoothing / logits.size(-1) + (1 - smoothing) * is_target
    kl_p_q = (p * difference).sum(-1, keepdim=True)
    kl_q_p = -(q * difference).sum(-1, keepdim=True)
    entropy = -(expected * (log_p + log_q)).sum() / 2
    logits[0].copy_(p * (0.5 + part * (1 + difference - kl_p_q)) - part * q - expected / 2)
    logits[1].copy_(q * (0.5 + part * (1 - difference - kl_q_p)) - part * p - expected / 2)
    return torch.stack([entropy, (kl_p_q + kl_q_p).sum() / 2])


def r_drop_loss(
    config: LossConfig, hidden: Passes, weight: Weight, target: Target, *, compiled: bool = False
) -> RDropLoss:
    """The loss by the config; fused, without all logits, if it has a chunk."""
    alpha = config.consistency_weight
    smoothing = config.label_smoothing
    if config.chunk == 0:
        return plain_r_drop_loss(hidden, weight, target, smoothing, alpha)
    formula = partial(_formula, smoothing=smoothing, alpha=alpha)
    kernel: LogitsFormula | None = None
    if compiled:
        kernel = partial(compiled_loss(fused_consistency), smoothing=smoothing, alpha=alpha)
    weights = (1.0, alpha / 2)
    loss, sums = FusedLoss.apply(hidden, weight, target, config, weights, formula, kernel)
    return RDropLoss(loss, *sums)
