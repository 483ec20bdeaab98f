"""Label-smoothed cross-entropy, summed over the real target tokens.

It does not divide: the normaliser is the token count of a whole update, which only the training
module knows. The plain formula stands beside its fused twin.

Source: Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.layers.mixed_precision import product_dtype, without_autocast
from transformer.training.losses.config import LossConfig

Hidden = Float[Tensor, "token width"]
Weight = Float[Tensor, "vocab width"]
Target = Int[Tensor, " token"]
Scalar = Float[Tensor, ""]
LogitsKernel = Callable[..., Tensor]
"""Computes the sums of a loss, and puts the gradient in the place of the logits."""

BLOCK = 64
"""Tokens of a block of logits that fits the cache of a CPU."""

ROWS, GPU_ROWS = 512, 8192
"""Rows of logits in memory at a time if no gradient is needed, on a CPU and elsewhere."""


def joined_bias(
    hidden: Float[Tensor, "*rows width"], projection: nn.Linear
) -> tuple[Float[Tensor, "*rows width_in"], Float[Tensor, "vocab width_in"]]:
    """Hidden states and matrix of the output, whose product are the logits.

    With a bias, it is one more column of the matrix, and each hidden state has a one for it.
    """
    bias: Tensor | None = projection.bias
    if bias is None:
        return hidden, projection.weight
    matrix = torch.cat((projection.weight, bias[:, None]), dim=1)
    return F.pad(hidden, (0, 1), value=1.0), matrix


def cross_entropy(hidden: Hidden, weight: Weight, target: Target, label_smoothing: float) -> Scalar:
    """Compute the loss by the formula.

    Args:
        hidden: Hidden state of the decoder for each target token.
        weight: The output projection.
        target: The right tokens, without padding.
        label_smoothing: Probability mass spread evenly over the vocabulary; with 0 the loss is the
            negative log-likelihood.

    Returns:
        The sum over the tokens, in nats.
    """
    logits = F.linear(hidden, weight)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits, target, reduction="sum", label_smoothing=label_smoothing)


def negative_log_likelihood(hidden: Hidden, weight: Weight, target: Target) -> Scalar:
    """The cross-entropy without smoothing and without gradient.

    As in the fused form, not all logits are in memory at a time: validation needs no more memory
    than training.
    """
    rows = ROWS if hidden.device.type == "cpu" else GPU_ROWS
    chunks = zip(hidden.split(rows), target.split(rows), strict=True)
    return sum((cross_entropy(some, weight, right, 0.0) for some, right in chunks), torch.zeros(()))


class _FusedCrossEntropy(torch.autograd.Function):
    """Projection and cross-entropy in one pass over chunks of rows.

    The gradient of a sum of losses with respect to the logits is ``softmax - target``, known as
    soon as the logits are: the forward pass computes both gradients, and only one chunk of logits
    is in memory.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        config: LossConfig,
        kernel: LogitsKernel | None,
    ) -> Tensor:
        device, dtype = hidden.device.type, matrix_dtype(config, hidden)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        matrix, mean = weight.to(dtype), weight.mean(0).to(exact)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight)
        loss = torch.zeros((), dtype=exact, device=hidden.device)
        size = min(BLOCK if device == "cpu" else config.chunk, len(hidden))
        # One buffer for all blocks stays in the cache.
        scratch = loss.new_empty(0 if dtype == exact or kernel else size, len(weight))
        with without_autocast(device):
            for start in range(0, len(hidden), config.chunk):
                some = slice(start, start + config.chunk)
                rows, right = in_blocks(hidden[some].to(dtype), config.chunk), target[some, None]
                logits = rows @ matrix.T
                if kernel is not None:
                    loss += kernel(logits[: len(right)], right, config.label_smoothing)
                else:
                    # The mean row of the weight gives the mean of the logits over the vocabulary.
                    means = (rows.to(exact) @ mean)[:, None]
                    for block in blocks(len(right), size):
                        here = logits[block]
                        exactly = here if dtype == exact else scratch[: len(here)].copy_(here)
                        loss += _block(exactly, means[block], right[block], config.label_smoothing)
                        # The gradient overwrites the logits.
                        here.copy_(exactly)
                logits[len(right) :] = 0
                grad_hidden[some] = (logits @ matrix)[: len(right)]
                if ctx.needs_input_grad[1]:  # not where it is frozen
                    grad_weight += logits.T @ rows
        ctx.save_for_backward(grad_hidden, grad_weight)
        return loss

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_gradients(ctx, grad_loss), None, None, None


def scaled_gradients(ctx: Any, grad_loss: Tensor) -> tuple[Tensor, Tensor]:
    """The saved gradients of hidden states and weight, times the gradient of the loss."""
    grad_hidden, grad_weight = ctx.saved_tensors
    return grad_hidden * grad_loss.to(grad_hidden.dtype), grad_weight * grad_loss


def in_blocks(
    rows: Float[Tensor, "*passes token width"], chunk: int
) -> Float[Tensor, "*passes padded width"]:
    """Append zeros to the last chunk, up to whole blocks, so that products have few shapes.

    A processor with matrix units needs up to 12 ms to plan each shape (docs/performance.md).
    """
    missing = -rows.size(-2) % min(BLOCK, chunk)
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def blocks(tokens: int, size: int) -> Iterator[slice]:
    """Cut so many tokens into blocks."""
    return (slice(start, min(start + size, tokens)) for start in range(0, tokens, size))


def _block(
    logits: Float[Tensor, "token vocab"],
    mean: Float[Tensor, "token 1"],
    right: Int[Tensor, "token 1"],
    smoothing: float,
) -> Scalar:
    """The sum of the loss; its gradient overwrites the logits."""
    rightly, top = logits.gather(-1, right), logits.amax(-1, keepdim=True)
    # The softmax by hand, as log Z is needed, too.
    grad = logits.sub_(top).exp_()
    z = grad.sum(-1, keepdim=True)
    log_z = top + z.log()
    grad.mul_(z.reciprocal()).sub_(smoothing / logits.size(-1))
    grad.scatter_add_(-1, right, grad.new_full(right.shape, smoothing - 1))
    surprise, spread = (log_z - rightly).sum(), (log_z - mean).sum()
    return (1 - smoothing) * surprise + smoothing * spread


def matrix_dtype(config: LossConfig, hidden: Tensor) -> torch.dtype:
    """The dtype of the matrix products of the fused form."""
    return torch.bfloat16 if config.bfloat16 else product_dtype(hidden)


def loss_function(
    config: LossConfig, hidden: Hidden, weight: Weight, target: Target, *, compiled: bool = False
) -> Scalar:
    """``cross_entropy``, in the fused form if the config has a chunk.

    The fused form never holds all logits in memory. Under autocast its matrix products run in the
    dtype of autocast, the rest in float32: with ``compiled`` as one kernel (compiled_loss.py).
    """
    if config.chunk == 0:
        return cross_entropy(hidden, weight, target, config.label_smoothing)
    kernel: LogitsKernel | None = None
    if compiled:
        from transformer.training.losses.compiled_loss import compiled_loss, fused_cross_entropy

        kernel = compiled_loss(fused_cross_entropy)
    loss: Tensor = _FusedCrossEntropy.apply(hidden, weight, target, config, kernel)
    return loss
