"""Norms: of the residual stream, and of the heads of queries and keys."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.settings.model import ModelConfig


def build_norm(config: ModelConfig) -> nn.Module:
    """The norm over the width of the residual stream (Ba et al. 2016; Zhang and Sennrich 2019)."""
    width = config.d_model
    return nn.RMSNorm(width, eps=1e-6) if config.norm == "rms" else nn.LayerNorm(width)


def build_final_norm(config: ModelConfig) -> nn.Module:
    """The norm at the end of a pre-norm or sandwich stack."""
    return build_norm(config) if config.norm_order in ("pre", "sandwich") else nn.Identity()


class HeadNorm(nn.RMSNorm):
    """RMS norm of heads; in mixed precision, heads have fewer bits than its weight."""

    def forward(self, heads: Float[Tensor, "*rows head_dim"]) -> Float[Tensor, "*rows head_dim"]:
        """Normalize; the result has the type of the heads (autocast would make it float32)."""
        weight = self.weight.to(heads.dtype)
        return F.rms_norm(heads, self.normalized_shape, weight, self.eps).to(heads.dtype)
