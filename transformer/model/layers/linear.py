"""The linear map, by the fastest product on a CPU.

torch multiplies float32 with MKL, which uses only half of the vector width of processors that are
not Intel's; oneDNN, which comes with torch too, uses all. Measured in docs/decoding.md.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
