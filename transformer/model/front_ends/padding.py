"""Padding of sources that are vectors."""

from jaxtyping import Bool, Float
from torch import Tensor


def without_padding(
    source: Float[Tensor, "*axes channels"],
) -> tuple[Float[Tensor, "*axes channels"], Bool[Tensor, "*axes"]]:
    """Write 0 in place of NaN, which marks padding; also return where vectors are none."""
    padding = source.isnan()
    return source.masked_fill(padding, 0), ~padding[..., 0]
