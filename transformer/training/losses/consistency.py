"""Consistency of two passes: R-Drop (Liang et al. 2021, eq. 2-4), SimCut (Gao et al. 2022)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.data.tokenization.tokenizer import BOS, EOS, PAD
from transformer.model.transformer import Transformer
from transformer.training.losses.config import LossConfig
from transformer.training.losses.cross_entropy import (
    FusedLoss,
    Scalar,
    Target,
    Weight,
    compiled_loss,
)

Passes = Float[Tensor, "2 token width"]


class Terms(NamedTuple):
    """Weights of the loss terms; p is the prediction of the first pass, q of the second.

    ``cross_entropy`` has the weights of both passes, ``divergence`` the weights of KL(p || q) and
    KL(q || p), ``weight`` the weight of the divergence relative to the cross-entropy.
    """

    cross_entropy: tuple[float, float]
    divergence: tuple[float, float]
    weight: float


def paper_terms(config: LossConfig) -> Terms:
    """The terms of a paper.

    R-Drop adds up the cross-entropies of both passes and alpha times the mean of both divergences.
    Here the sum is halved, so that learning rate, clipping and ``train/loss`` keep their meaning:
    (CE + CE) / 2 + alpha / 2 * (KL + KL) / 2. SimCut adds alpha times KL(p || q) to the
    cross-entropy of the first pass. The gradient flows through both p and q, as in the authors'
    code.
    """
    alpha = config.consistency_weight
    if config.consistency == "simcut":
        return Terms((1.0, 0.0), (1.0, 0.0), alpha)
    return Terms((0.5, 0.5), (0.5, 0.5), alpha / 2)


class ConsistencyLoss(NamedTuple):
    """Sums over the tokens, in nats."""

    loss: Scalar
    """Cross-entropy and weighted divergence; only this sum has a gradient."""
    cross_entropy: Scalar
    divergence: Scalar


def plain_consistency_loss(
    hidden: Passes, weight: Weight, target: Target, label_smoothing: float, terms: Terms
) -> ConsistencyLoss:
    """Compute the loss by the formula; the arguments are those of ``cross_entropy``."""
    logits = F.linear(hidden, weight)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    first, second = logits.log_softmax(-1)
    entropy, divergence = logits.new_zeros(()), logits.new_zeros(())
    for part, each in zip(terms.cross_entropy, logits, strict=True):
        summed = F.cross_entropy(each, target, reduction="sum", label_smoothing=label_smoothing)
        entropy = entropy + part * summed
    # F.kl_div(log q, log p) is KL(p || q).
    for part, log_q, log_p in zip(terms.divergence, (second, first), (first, second), strict=True):
        divergence = divergence + part * F.kl_div(log_q, log_p, reduction="sum", log_target=True)
    loss = entropy + terms.weight * divergence
    return ConsistencyLoss(loss, entropy.detach(), divergence.detach())


def _formula(
    logits: Float[Tensor, "2 token vocab"],
    right: Int[Tensor, "token 1"],
    mean: Float[Tensor, "2 token 1"],
    smoothing: float,
    terms: Terms,
) -> Float[Tensor, " 2"]:
    """The sums of cross-entropy and divergence; the gradient of the loss overwrites the logits.

    With c the weights of the cross-entropies, u and v the weights of KL(p || q) and KL(q || p), and
    d = a - b the difference of the logits, which is log p - log q but for a constant a token:

        dL/da = p (c_a + v + u (d - E_p d)) - v q - c_a target
        dL/db = q (c_b + u - v (d - E_q d)) - u p - c_b target
    """
    first, second = terms.cross_entropy
    u, v = (terms.weight * part for part in terms.divergence)
    rightly = logits.gather(-1, right.expand(2, -1, -1))
    top = logits.amax(-1, keepdim=True)
    p, q = softmax = logits.softmax(-1)
    # The largest probability is exp(top - top) / Z.
    log_z = top - softmax.amax(-1, keepdim=True).log()
    difference = logits[0] - logits[1]
    under_p, under_q = torch.linalg.vecdot(softmax, difference)[..., None]
    grad = torch.empty_like(logits)
    torch.add(first + v - u * under_p, difference, alpha=u, out=grad[0])
    torch.add(second + u + v * under_q, difference, alpha=-v, out=grad[1])
    grad.mul_(softmax)
    grad[0].sub_(q, alpha=v)
    grad[1].sub_(p, alpha=u)
    for each, part in zip(grad, terms.cross_entropy, strict=True):
        each.sub_(part * smoothing / logits.size(-1))
        each.scatter_add_(-1, right, each.new_full(right.shape, part * (smoothing - 1)))
    surprise = (log_z - (1 - smoothing) * rightly - smoothing * mean).sum((1, 2))
    shift = log_z[1] - log_z[0]
    entropy = first * surprise[0] + second * surprise[1]
    ahead, back = terms.divergence
    divergence = ahead * (under_p + shift).sum() - back * (under_q + shift).sum()
    logits.copy_(grad)
    return torch.stack([entropy, divergence])


def fused_consistency(
    logits: Float[Tensor, "2 token vocab"],
    right: Int[Tensor, "token 1"],
    smoothing: float,
    terms: Terms,
) -> Float[Tensor, " 2"]:
    """As ``_formula``, by the formula of the paper, for ``torch.compile``; in float32."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_p, log_q = exact.log_softmax(-1)
    p, q, difference = log_p.exp(), log_q.exp(), log_p - log_q
    hit = torch.arange(logits.size(-1), device=logits.device) == right
    expected = smoothing / logits.size(-1) + (1 - smoothing) * hit
    ahead = (p * difference).sum(-1, keepdim=True)
    back = -(q * difference).sum(-1, keepdim=True)
    first, second = terms.cross_entropy
    forth, around = terms.divergence
    u, v = terms.weight * forth, terms.weight * around
    entropy = -(expected * (first * log_p + second * log_q)).sum()
    logits[0].copy_(p * (first + v + u * (difference - ahead)) - v * q - first * expected)
    logits[1].copy_(q * (second + u - v * (difference + back)) - u * p - second * expected)
    return torch.stack([entropy, forth * ahead.sum() + around * back.sum()])


def consistency_loss(
    config: LossConfig,
    hidden: Passes,
    weight: Weight,
    target: Target,
    terms: Terms | None = None,
    *,
    compiled: bool = False,
) -> ConsistencyLoss:
    """The loss by ``terms`` or the config's; fused, without all logits, if it has a chunk."""
    terms, smoothing = terms or paper_terms(config), config.label_smoothing
    if config.chunk == 0:
        return plain_consistency_loss(hidden, weight, target, smoothing, terms)
    settings: dict[str, Any] = {"smoothing": smoothing, "terms": terms}
    kernel = partial(compiled_loss(fused_consistency), **settings) if compiled else None
    formula, weights = partial(_formula, **settings), (1.0, terms.weight)
    loss, sums = FusedLoss.apply(hidden, weight, target, config, weights, formula, kernel)
    return ConsistencyLoss(loss, *sums)


def drawn_cut(
    tokens: Int[Tensor, "rows length"], probability: float
) -> Bool[Tensor, "rows length"] | None:
    """Draw tokens to cut in the second half of the batch, except padding and control symbols."""
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
