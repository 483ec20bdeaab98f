"""The linear map, by the fastest product of this processor.

torch multiplies float32 with MKL. MKL is faster if the weight lies transposed in memory, and uses
only half of the vector width of some processors that are not Intel's. There oneDNN, which comes
with torch too, is faster. docs/decoding.md has measurements.
"""

import timeit
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

Model = TypeVar("Model", bound=nn.Module)

ONEDNN_FROM = 2**20
"""Multiplications from which on oneDNN's start of 10 to 30 microseconds pays, if it is faster."""

PAYS = 1.25
"""oneDNN replaces MKL where it is so many times as fast: noise does not change the choice."""

onednn_linear = (
    torch.ops.mkldnn._linear_pointwise
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    else None
)
"""It has no gradient."""


class Linear(nn.Linear):
    """``x W^T + b``."""

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width_out"]:
        if onednn_linear is None or not self._onednn_computes(x):
            return super().forward(x)
        return onednn_linear(x, self.weight, self.bias, "none", [], "")

    def _onednn_computes(self, x: Tensor) -> bool:
        return (
            not torch.compiler.is_compiling()
            and x.numel() * self.out_features >= ONEDNN_FROM
            and x.dtype == torch.float32
            and x.device.type == "cpu"
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and onednn_is_faster()
        )


def lay_out(model: Model, *, untie: bool = False) -> Model:
    """Transpose the float32 weights of a model's linear maps in memory, where MKL multiplies.

    Names, shapes and values stay. A weight that is also an embedding stays as it is, since an
    embedding reads its rows; ``untie`` gives the linear map a copy, for models that are neither
    trained nor saved.
    """
    if onednn_is_faster():
        return model
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, Linear) and module.weight.dtype == torch.float32:
            tied = id(module.weight) in embeddings
            if not tied or untie:
                transposed = module.weight.detach().t().contiguous().t()
                module.weight = nn.Parameter(transposed, module.weight.requires_grad)
    return model


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 faster than MKL on this processor, measured once."""
    if onednn_linear is None:
        return False
    with torch.inference_mode():
        x, weight = torch.ones(64, 512), torch.ones(512, 512)
        mkl = best_time(F.linear, x, weight)
        return mkl > PAYS * best_time(onednn_linear, x, weight, None, "none", [], "")


def best_time(compute: Callable[..., Tensor], *arguments: Any) -> float:
    """Seconds of the fastest of six calls."""
    return min(timeit.repeat(lambda: compute(*arguments), repeat=6, number=1))
