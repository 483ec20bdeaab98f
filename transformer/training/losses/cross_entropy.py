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

BLOCK = 64
"""Tokens of a block of logits that fits the cache of a CPU."""

ROWS, GPU_ROWS = 512, 8192
"""Rows of logits in memory at a time if no gradient is needed, on a CPU and elsewhere."""


def joined_bias(
    hidden: Float[Tensor, "*rows width"], projection: nn.Linear
) -> tuple[Float[Tensor, "*rows width_in"], Float[Tensor, "vocab width_in"]]:
    """Hidden states and matrix; their product is the logits. A bias is one more column."""
    bias: Tensor | None = projection.bias
    if bias is None:
        return hidden, projection.weight
    matrix = torch.cat((projection.weight, bias[:, None]), dim=1)
    return F.pad(hidden, (0, 1), value=1.0), matrix


def cross_entropy(hidden: Hidden, weight: Weight, target: Target, label_smoothing: float) -> Scalar:
    """Compute the loss by the formula: the sum over the tokens, in nats."""
    logits = F.linear(hidden, weight)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits, target, reduction="sum", label_smoothing=label_smoothing)


def negative_log_likelihood(hidden: Hidden, weight: Weight, target: Target) -> Scalar:
    """The cross-entropy without smoothing and without gradient, in chunks to save memory."""
    rows = ROWS if hidden.device.type == "cpu" else GPU_ROWS
    chunks = zip(hidden.split(rows), target.split(rows), strict=True)
    return sum((cross_entropy(some, weight, right, 0.0) for some, right in chunks), torch.zeros(()))


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
        device, dtype = hidden.device.type, matrix_dtype(config, hidden)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        passes, chunk = len(hidden), max(1, config.chunk // len(hidden))
        matrix, mean = weight.to(dtype), weight.mean(0).to(exact)
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        sums = torch.zeros(len(weights), dtype=exact, device=hidden.device)
        size = min(BLOCK if device == "cpu" else chunk, len(target))
        # The device meta has no autocast.
        with nullcontext() if device == "meta" else torch.autocast(device, enabled=False):
            for start in range(0, len(target), chunk):
                some = slice(start, start + chunk)
                right, tokens = target[some, None], len(target[some])
                # passes token width -> (passes token) width
                rows = _in_blocks(hidden[:, some].to(dtype), chunk).flatten(0, 1)
                logits = (rows @ matrix.T).unflatten(0, (passes, -1))
                if kernel is not None and tokens > 1:  # one is compiled by itself
                    sums += kernel(logits[:, :tokens], right)
                else:
                    # The mean row of the weight gives the mean of the logits over the vocabulary.
                    means = (rows.to(exact) @ mean).view(passes, -1, 1)
                    for each in _by_blocks(formula, logits[:, :tokens], right, means, size):
                        sums += each
                logits[:, tokens:] = 0
                grad_hidden[:, some] = (logits @ matrix)[:, :tokens]
                if ctx.needs_input_grad[1]:  # not where it is frozen
                    grad_weight += logits.flatten(0, 1).T @ rows
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(sums)
        parts = zip(weights, sums, strict=True)
        return sum((part * each for part, each in parts), sums.new_zeros(())), sums

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        grads = grad_hidden * grad_loss.to(grad_hidden.dtype), grad_weight * grad_loss
        return *grads, None, None, None, None, None


def _in_blocks(
    rows: Float[Tensor, "*passes token width"], chunk: int
) -> Float[Tensor, "*passes padded width"]:
    """Append zeros up to whole blocks: each new shape costs up to 12 ms (docs/performance.md)."""
    missing = -rows.size(-2) % min(BLOCK, chunk)
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def _by_blocks(
    formula: LogitsFormula,
    logits: Float[Tensor, "passes token vocab"],
    right: Int[Tensor, "token 1"],
    means: Float[Tensor, "passes padded 1"],
    size: int,
) -> Iterator[Tensor]:
    """The sums over blocks of this many tokens, computed in the dtype of the means."""
    narrow = logits.dtype != means.dtype
    # One buffer for all blocks stays in the cache.
    buffer = means.new_empty(len(logits), size if narrow else 0, logits.size(-1))
    for start in range(0, len(right), size):
        block = slice(start, min(start + size, len(right)))
        here = logits[:, block]
        exact = buffer[:, : here.size(1)].copy_(here) if narrow else here
        yield formula(exact, right[block], means[:, block])
        here.copy_(exact)


def _formula(
    logits: Float[Tensor, "1 token vocab"],
    right: Int[Tensor, "token 1"],
    mean: Float[Tensor, "1 token 1"],
    smoothing: float,
) -> Scalar:
    right = right[None]
    rightly, top = logits.gather(-1, right), logits.amax(-1, keepdim=True)
    # The softmax by hand, as log Z is needed, too.
    grad = logits.sub_(top).exp_()
    z = grad.sum(-1, keepdim=True)
    log_z = top + z.log()
    grad.mul_(z.reciprocal()).sub_(smoothing / logits.size(-1))
    grad.scatter_add_(-1, right, grad.new_full(right.shape, smoothing - 1))
    surprise, spread = (log_z - rightly).sum(), (log_z - mean).sum()
    return (1 - smoothing) * surprise + smoothing * spread


def fused_cross_entropy(
    logits: Float[Tensor, "token vocab"], right: Int[Tensor, "token 1"], smoothing: float
) -> Float[Tensor, ""]:
    """The sum of the loss for ``torch.compile``, in float32; its gradient overwrites the logits."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    hit = torch.arange(logits.size(-1), device=logits.device) == right
    log_z = exact.logsumexp(-1, keepdim=True)
    surprise = log_z - torch.where(hit, exact, 0).sum(-1, keepdim=True)
    spread = log_z - exact.mean(-1, keepdim=True)
    expected = smoothing / logits.size(-1) + (1 - smoothing) * hit
    logits.copy_((exact - log_z).exp() - expected)
    return ((1 - smoothing) * surprise + smoothing * spread).sum()


@cache
def compiled_loss(function: LogitsFormula) -> LogitsFormula:
    """A loss by its formula, compiled for any number of tokens."""
    return torch.compile(function, dynamic=True)


def matrix_dtype(config: LossConfig, hidden: Tensor) -> torch.dtype:
    """The dtype of the matrix products of the fused form."""
    narrow = config.bfloat16
    if narrow == "auto":
        narrow = multiplies_bfloat16(hidden.device) is True
    return torch.bfloat16 if narrow else product_dtype(hidden)


def loss_function(
    config: LossConfig, hidden: Hidden, weight: Weight, target: Target, *, compiled: bool = False
) -> Scalar:
    """``cross_entropy``, in the fused form if the config has a chunk."""
    if config.chunk == 0:
        return cross_entropy(hidden, weight, target, config.label_smoothing)
    kernel: LogitsFormula | None = None
    if compiled:
        fused = compiled_loss(fused_cross_entropy)

        def kernel_of_one_pass(logits: Tensor, right: Tensor) -> Tensor:
            return fused(logits[0], right, config.label_smoothing)

        kernel = kernel_of_one_pass
    formula = partial(_formula, smoothing=config.label_smoothing)
    loss, _ = FusedLoss.apply(hidden[None], weight, target, config, (1.0,), formula, kernel)
    return loss
