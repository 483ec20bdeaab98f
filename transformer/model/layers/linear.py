"""The linear map, by the fastest product on a CPU.

torch multiplies float32 with MKL, which uses only half of the vector width of processors that are
not Intel's; oneDNN, which comes with torch too, uses all. Measured in docs/decoding.md.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

ONEDNN_FROM = 2**20
"""Multiplications from which on oneDNN's start of about 10 microseconds pays."""

onednn_linear = (
    torch.ops.mkldnn._linear_pointwise
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    else None
)
"""It has no gradient."""


class Linear(nn.Linear):
    """``x W^T + b``."""

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width_out"]:
        """Map the last axis."""
        if onednn_linear is None or not self._onednn_computes(x):
            return super().forward(x)
        mapped: Tensor = onednn_linear(x, self.weight, self.bias, "none", [], "")
        return mapped

    def _onednn_computes(self, x: Tensor) -> bool:
        return (
            not torch.compiler.is_compiling()
            and x.numel() * self.out_features >= ONEDNN_FROM
            and x.dtype == torch.float32
            and x.device.type == "cpu"
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
        )


def linear_together(
    x: Float[Tensor, "*rows width"], layers: Sequence[nn.Module]
) -> tuple[Float[Tensor, "*rows width_out"], ...]:
    """Map one input by several layers: in training on a GPU by one product, launched once."""
    if not one_product_pays(x, layers):
        return tuple(layer(x) for layer in layers)
    return one_product(x, layers)


def one_product_pays(x: Float[Tensor, "*rows width"], layers: Sequence[nn.Module]) -> bool:
    """Whether several layers map one input faster by one product: in training on a GPU.

    Other kinds of layers have other weights. Sharded weights, which are no plain parameters, are
    whole only while their own layer computes.
    """
    return (
        x.device.type != "cpu"
        and torch.is_grad_enabled()
        and all(type(one) is Linear and type(one.weight) is nn.Parameter for one in layers)
    )


def one_product(
    x: Float[Tensor, "*rows width"], layers: Sequence[Any]
) -> tuple[Float[Tensor, "*rows width_out"], ...]:
    """Map one input by several layers with biases, whose weights are laid end to end."""
    weight = torch.cat([layer.weight for layer in layers])
    bias = torch.cat([layer.bias for layer in layers])
    return F.linear(x, weight, bias).split([layer.out_features for layer in layers], dim=-1)
