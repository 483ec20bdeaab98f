"""Norms: of the residual stream, and of the heads of queries and keys."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.settings.model import ModelConfig

Heads = Float[Tensor, "*rows head_dim"]


def build_norm(config: ModelConfig) -> nn.Module:
    """The norm over the width of the residual stream (Ba et al. 2016; Zhang and Sennrich 2019)."""
    width = config.d_model
    if config.norm == "rms":
        return nn.RMSNorm(width, eps=1e-6)
    return nn.LayerNorm(width, eps=config.norm_epsilon)


def build_final_norm(config: ModelConfig) -> nn.Module:
    """The norm at the end of a pre-norm or sandwich stack."""
    return build_norm(config) if config.norm_order in ("pre", "sandwich") else nn.Identity()


class HeadNorm(nn.RMSNorm):
    """RMS norm of heads; in mixed precision, heads have fewer bits than its weight."""

    def forward(self, heads: Heads) -> Heads:
        """Normalize; the result has the type of the heads (autocast would make it float32)."""
        on_cpu = heads.device.type == "cpu" and not torch.compiler.is_compiling()
        if on_cpu and torch.is_grad_enabled():
            return RootMeanSquareNorm.apply(heads, self.weight, self.eps).to(heads.dtype)
        weight = self.weight.to(heads.dtype)
        return F.rms_norm(heads, self.normalized_shape, weight, self.eps).to(heads.dtype)


class RootMeanSquareNorm(torch.autograd.Function):
    """``x / sqrt(mean(x^2) + eps) * w``, in training on a CPU.

    torch has no kernel of it there: its chain of operations takes about twice the time of this.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, heads: Heads, weight: Float[Tensor, " head_dim"], eps: float) -> Heads:
        mean_square = torch.linalg.vector_norm(heads, dim=-1, keepdim=True).square_()
        scale = mean_square.div_(heads.size(-1)).add_(eps).rsqrt_()
        normalized = heads * scale
        ctx.save_for_backward(normalized, scale, weight)
        return normalized * weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: Heads) -> tuple[Heads, Float[Tensor, " head_dim"], None]:
        normalized, scale, weight = ctx.saved_tensors
        products = (gradient * normalized).flatten(0, -2)
        # Of a row: the part of the gradient that would change its length alone.
        along = (products @ weight).div_(-len(weight)).view(scale.shape)
        head_gradient = torch.addcmul(gradient * weight, normalized, along).mul_(scale)
        return head_gradient, products.sum(0), None
