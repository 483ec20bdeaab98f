"""The linear map, by the fastest product of this processor.

torch multiplies float32 with MKL. MKL is faster if the weight lies transposed in memory, and uses
only half of the vector width of some processors that are not Intel's. There oneDNN, which comes
with torch too, is faster. common/processor.py chooses; benchmarks/decoding/speed.md measures.
"""

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer.common.processor import processor

Model = TypeVar("Model", bound=nn.Module)

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
        if (
            torch.compiler.is_compiling()  # it cannot trace processor()
            or x.device.type != "cpu"
            or x.dtype != torch.float32
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
        ):
            return False
        smallest = processor().onednn_from
        return smallest is not None and x.numel() * self.out_features >= smallest


def lay_out(model: Model, *, untie: bool = False) -> Model:
    """Transpose the float32 weights of a model's linear maps in memory, where MKL multiplies.

    Names, shapes and values stay. A weight that is also an embedding stays as it is, since an
    embedding reads its rows; ``untie`` gives the linear map a copy, for models that are neither
    trained nor saved.
    """
    if onednn_linear is not None and processor().onednn_from is not None:
        return model
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, Linear) and module.weight.dtype == torch.float32:
            tied = id(module.weight) in embeddings
            if not tied or untie:
                transposed = module.weight.detach().t().contiguous().t()
                module.weight = nn.Parameter(transposed, module.weight.requires_grad)
    return model


def product_dtype(hidden: Float[Tensor, "*axes"]) -> torch.dtype:
    """The type of a product: the type of autocast, if it is on."""
    device = hidden.device.type
    # Of the devices that models are on, meta has no autocast. torch 2.11 cannot compile
    # is_autocast_available.
    autocast = device != "meta" and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if autocast else hidden.dtype


def for_products(hidden: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
    """Cast the input of several products once, as autocast would cast it for each."""
    return hidden.to(product_dtype(hidden)) if hidden.dtype == torch.float32 else hidden
