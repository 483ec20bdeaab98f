"""The linear map, by the fastest product of this processor.

torch multiplies float32 with MKL. MKL is faster if the weight is stored transposed. On some
processors of other vendors than Intel, it uses only half of the vector width. oneDNN, also part of
torch, uses the full width, but takes longer to start. docs/decoding.md has measurements.
"""

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

Model = TypeVar("Model", bound=nn.Module)

onednn_linear = (
    torch.ops.mkldnn._linear_pointwise
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    else None
)
"""It has no gradient."""

PAYS = 1.25
"""oneDNN must be this many times as fast as MKL, so that noise does not change the choice."""


class Linear(nn.Linear):
    """``x W^T + b``."""

    laid_out = False
    """Whether the weight is laid out for inference (``lay_out``)."""

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width_out"]:
        """Map the last axis."""
        if not self.laid_out or not self._onednn_computes(x):
            return super().forward(x)
        assert onednn_linear is not None
        mapped: Tensor = onednn_linear(x, self.weight, self.bias, "none", [], "")
        return mapped

    def _onednn_computes(self, x: Tensor) -> bool:
        return (
            not torch.compiler.is_compiling()
            and x.dtype == torch.float32
            and x.device.type == "cpu"
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and x.numel() * self.out_features >= onednn_pays_from()
        )


def lay_out(model: Model) -> Model:
    """Transpose the weights of a model's linear maps in memory; for inference in float32 on a CPU.

    Names, shapes and values do not change. A projection tied to an embedding gets a copy of the
    weight, because an embedding reads it row by row.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, Linear) and module.weight.dtype == torch.float32:
            laid_out = module.weight.detach().t().contiguous().t()
            if id(module.weight) in embeddings:
                module.weight = nn.Parameter(laid_out)
            else:
                module.weight.data = laid_out
            module.laid_out = True
    return model


@cache
def onednn_pays_from() -> float:
    """Number of multiplications from which oneDNN is faster here; measured in milliseconds.

    Infinite if oneDNN is never faster.
    """
    if onednn_linear is None:
        return math.inf
    with torch.inference_mode():
        for width in (128, 256, 512):
            x, weight = torch.ones(64, width), torch.ones(width, width).t()
            torch_time = best_time(F.linear, x, weight)
            onednn = best_time(onednn_linear, x, weight, None, "none", [], "")
            if torch_time > PAYS * onednn:
                return float(x.numel() * width)
    return math.inf


def best_time(compute: Callable[..., Tensor], *arguments: Any) -> float:
    """Seconds of the fastest of five calls, after a warm-up call."""
    compute(*arguments)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        compute(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)
