"""Label-smoothed cross-entropy (Szegedy et al. 2016, section 7), by formula and fused."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.layers.linear import product_dtype
from transformer.settings.training import LossConfig
from transformer.training.precision import multiplies_bfloat16

Hidden = Float[Tensor, "token width"]
Weight = Float[Tensor, "vocab width"]
Target = Int[Tensor, " token"]
Scalar = Float[Tensor, ""]
LogitsFormula = Callable[..., Tensor]
"""Computes the sums of a loss from ``passes token vocab``, which its gradient overwrites."""

BLOCK_TOKENS = 64
"""Tokens of a block of logits that fits the cache of a CPU."""

VALIDATION_TOKENS = 512
"""Tokens whose logits are in memory at a time if no gradient is needed, on a CPU."""

GPU_VALIDATION_TOKENS = 8192
"""As ``VALIDATION_TOKENS``, on other devices."""


NO_TOKEN = -100
"""A target that no token has: nothing is ignored (torch's default)."""


def joined_bias(
    hidden: Float[Tensor, "*rows width"], projection: nn.Linear
) -> tuple[Float[Tensor, "*rows width_in"], Float[Tensor, "vocab width_in"]]:
    """Hidden states and matrix; their product is the logits. A bias is one more column."""
    bias: Tensor | None = projection.bias
    if bias is None:
        return hidden, projection.weight
    matrix = torch.cat((projection.weight, bias[:, None]), dim=1)
    return F.pad(hidden, (0, 1), value=1.0), matrix


def cross_entropy(
    hidden: Hidden,
    weight: Weight,
    target: Target,
    label_smoothing: float,
    ignored: int = NO_TOKEN,
) -> Scalar:
    """Compute the loss by the formula: the sum over the tokens but ``ignored`` ones, in nats."""
    logits = F.linear(hidden, weight)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(
        logits, target, reduction="sum", label_smoothing=label_smoothing, ignore_index=ignored
    )


def negative_log_likelihood(hidden: Hidden, weight: Weight, target: Target) -> Scalar:
    """The cross-entropy without smoothing and without gradient, in chunks to save memory."""
    tokens = VALIDATION_TOKENS if hidden.device.type == "cpu" else GPU_VALIDATION_TOKENS
    total = torch.zeros(())
    for chunk, chunk_target in zip(hidden.split(tokens), target.split(tokens), strict=True):
        total = total + cross_entropy(chunk, weight, chunk_target, 0.0)
    return total


class FusedLoss(torch.autograd.Function):
    """Projection and loss, chunk by chunk, for one or more passes of the model over each token.

    The forward pass computes the gradient with the logits (``softmax - target`` for the
    cross-entropy), so that only one chunk of logits is in memory. The loss is the weighted total of
    the sums that ``formula``, or the compiled ``kernel``, returns.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "passes token width"],
        weight: Weight,
        target: Target,
        config: LossConfig,
        weights: Sequence[float],
        formula: LogitsFormula,
        kernel: LogitsFormula | None,
    ) -> tuple[Scalar, Float[Tensor, " sum"]]:
        """Return the loss, and the sums that it is made of; ``ctx`` keeps the gradients.

        ``weights`` are those of the sums, in nats over all tokens.
        """
        device = hidden.device.type
        dtype = matrix_dtype(config, hidden)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        passes = len(hidden)
        chunk_tokens = max(1, config.chunk // passes)
        block_tokens = min(BLOCK_TOKENS if device == "cpu" else chunk_tokens, len(target))
        matrix = weight.to(dtype)
        mean_row = weight.mean(0).to(exact)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight)
        sums = torch.zeros(len(weights), dtype=exact, device=hidden.device)
        # The device meta has no autocast.
        with nullcontext() if device == "meta" else torch.autocast(device, enabled=False):
            for start in range(0, len(target), chunk_tokens):
                chunk = slice(start, start + chunk_tokens)
                chunk_target = target[chunk, None]
                tokens = len(chunk_target)
                # passes token width -> (passes token) width
                rows = _in_blocks(hidden[:, chunk].to(dtype), chunk_tokens).flatten(0, 1)
                logits = (rows @ matrix.T).unflatten(0, (passes, -1))
                if kernel is not None and tokens > 1:  # one would be compiled by itself
                    sums += kernel(logits[:, :tokens], chunk_target)
                else:
                    # The mean row of the weight gives the mean of the logits over the vocabulary.
                    means = (rows.to(exact) @ mean_row).view(passes, -1, 1)
                    for block_sums in _by_blocks(
                        formula, logits[:, :tokens], chunk_target, means, block_tokens
                    ):
                        sums += block_sums
                # Now the gradient of the logits.
                logits[:, tokens:] = 0
                grad_hidden[:, chunk] = (logits @ matrix)[:, :tokens]
                if ctx.needs_input_grad[1]:  # not where it is frozen
                    grad_weight += logits.flatten(0, 1).T @ rows
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(sums)
        loss = sums.new_zeros(())
        for sum_weight, value in zip(weights, sums, strict=True):
            loss = loss + sum_weight * value
        return loss, sums

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        grad_hidden = grad_hidden * grad_loss.to(grad_hidden.dtype)
        return grad_hidden, grad_weight * grad_loss, None, None, None, None, None


def _in_blocks(
    rows: Float[Tensor, "*passes token width"], chunk_tokens: int
) -> Float[Tensor, "*passes padded width"]:
    """Append zeros up to whole blocks: each new shape costs up to 12 ms (docs/performance.md)."""
    missing = -rows.size(-2) % min(BLOCK_TOKENS, chunk_tokens)
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def _by_blocks(
    formula: LogitsFormula,
    logits: Float[Tensor, "passes token vocab"],
    target: Int[Tensor, "token 1"],
    means: Float[Tensor, "passes padded 1"],
    block_tokens: int,
) -> Iterator[Tensor]:
    """The sums over blocks of this many tokens, computed in the dtype of the means."""
    is_narrow = logits.dtype != means.dtype
    # One buffer for all blocks stays in the cache.
    buffer = means.new_empty(len(logits), block_tokens if is_narrow else 0, logits.size(-1))
    for start in range(0, len(target), block_tokens):
        block = slice(start, min(start + block_tokens, len(target)))
        narrow = logits[:, block]
        exact = buffer[:, : narrow.size(1)].copy_(narrow) if is_narrow else narrow
        yield formula(exact, target[block], means[:, block])
        narrow.copy_(exact)


def _formula(
    logits: Float[Tensor, "1 token vocab"],
    target: Int[Tensor, "token 1"],
    mean: Float[Tensor, "1 token 1"],
    smoothing: float,
    ignored: int = NO_TOKEN,
) -> Scalar:
    """The sum of the loss; its gradient, ``softmax - smoothed target``, overwrites the logits.

    Both are 0 for ``ignored`` targets.
    """
    target = target[None]
    target_logit = logits.gather(-1, target)
    top = logits.amax(-1, keepdim=True)
    # The softmax by hand, as log Z is needed, too.
    grad = logits.sub_(top).exp_()
    z = grad.sum(-1, keepdim=True)
    log_z = top + z.log()
    uniform = smoothing / logits.size(-1)
    if ignored == NO_TOKEN:
        grad.mul_(z.reciprocal()).sub_(uniform)
        grad.scatter_add_(-1, target, grad.new_full(target.shape, smoothing - 1))
        target_loss = (log_z - target_logit).sum()
        uniform_loss = (log_z - mean).sum()
    else:
        counts = (target != ignored).to(logits.dtype)
        grad.mul_(z.reciprocal() * counts).sub_(uniform * counts)
        grad.scatter_add_(-1, target, (smoothing - 1) * counts)
        target_loss = ((log_z - target_logit) * counts).sum()
        uniform_loss = ((log_z - mean) * counts).sum()
    return (1 - smoothing) * target_loss + smoothing * uniform_loss


def fused_cross_entropy(
    logits: Float[Tensor, "token vocab"],
    target: Int[Tensor, "token 1"],
    smoothing: float,
    ignored: int = NO_TOKEN,
) -> Float[Tensor, ""]:
    """The sum of the loss for ``torch.compile``, in float32; its gradient overwrites the logits."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    is_target = torch.arange(logits.size(-1), device=logits.device) == target
    log_z = exact.logsumexp(-1, keepdim=True)
    target_loss = log_z - torch.where(is_target, exact, 0).sum(-1, keepdim=True)
    uniform_loss = log_z - exact.mean(-1, keepdim=True)
    expected = smoothing / logits.size(-1) + (1 - smoothing) * is_target
    counts = target != ignored
    logits.copy_(((exact - log_z).exp() - expected) * counts)
    return (((1 - smoothing) * target_loss + smoothing * uniform_loss) * counts).sum()


@cache
def compiled_loss(function: LogitsFormula) -> LogitsFormula:
    """A loss by its formula, compiled for any number of tokens."""
    return torch.compile(function, dynamic=True)


def matrix_dtype(config: LossConfig, hidden: Tensor) -> torch.dtype:
    """The dtype of the matrix products of the fused form."""
    bfloat16 = config.bfloat16
    if bfloat16 == "auto":
        bfloat16 = multiplies_bfloat16(hidden.device) is True
    return torch.bfloat16 if bfloat16 else product_dtype(hidden)


def loss_function(
    config: LossConfig,
    hidden: Hidden,
    weight: Weight,
    target: Target,
    *,
    compiled: bool = False,
    ignored: int = NO_TOKEN,
) -> Scalar:
    """``cross_entropy``, in the fused form if the config has a chunk."""
    if config.chunk == 0:
        return cross_entropy(hidden, weight, target, config.label_smoothing, ignored)
    kernel: LogitsFormula | None = None
    if compiled:
        fused = compiled_loss(fused_cross_entropy)

        def one_pass(logits: Tensor, target: Tensor) -> Tensor:
            return fused(logits[0], target, config.label_smoothing, ignored)

        kernel = one_pass
    formula = partial(_formula, smoothing=config.label_smoothing, ignored=ignored)
    loss, _ = FusedLoss.apply(hidden[None], weight, target, config, (1.0,), formula, kernel)
    return loss
