"""Records attention weights, for the attention page, alignments and guided alignment."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float
from torch import Tensor

from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.scaled_dot_product import Kernel, QueryHeads


@contextmanager
def recording(
    attentions: Iterable[MultiHeadAttention],
) -> Iterator[list[Float[Tensor, "batch head query key"]]]:
    """Compute attentions by their formulas, and list the weights of each call before dropout.

    The kernels of the attentions are replaced meanwhile, for all threads that use the model.
    """
    weights: list[Tensor] = []

    def recording_kernel(attention: MultiHeadAttention) -> Kernel:
        def kernel(*arguments: Any) -> QueryHeads:
            attended, head_weights = attention.formula(*arguments)
            weights.append(head_weights)
            return attended

        return kernel

    # A dict holds a shared module once, with its own kernel.
    kernels = {attention: attention.kernel for attention in attentions}
    for attention in kernels:
        attention.kernel = recording_kernel(attention)
    try:
        yield weights
    finally:
        for attention, kernel in kernels.items():
            attention.kernel = kernel
