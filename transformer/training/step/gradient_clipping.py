"""Converts the gradient of a sum to the gradient of a mean, and clips its norm."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def clip_mean_gradient(
    model: nn.Module, tokens: float | Tensor, max_norm: float | None, *, sharded: bool
) -> Tensor:
    """Average and clip (Pascanu et al. 2013, 3.2); returns the norm before clipping."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    gradients = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
    scale = (1 / tokens).float() if isinstance(tokens, Tensor) else 1 / tokens
    torch._foreach_mul_(gradients, scale)
    limit = max_norm or torch.inf
    # Without foreach, sharded weights are clipped one by one.
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit, foreach=sharded or None)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def mean_gradient_scale(
    model: nn.Module, tokens: float | Tensor, max_norm: float | None
) -> tuple[Tensor, Tensor]:
    """The norm of the mean gradient, and the divisor with which a fused optimizer reads it."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = (nn.utils.get_total_norm(gradients) / tokens).float()
    # As clip_grad_norm_ does.
    excess = ((norm + 1e-6) / (max_norm or torch.inf)).clamp(min=1.0)
    return norm, (excess * tokens).float()
