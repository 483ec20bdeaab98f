"""Several linear maps of one input as one product: one launch; int8 rounds the input once."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.layers.linear import Linear, for_products
from transformer.model.layers.quantization import Int8Linear

Input = Float[Tensor, "*rows width"]
Outputs = tuple[Float[Tensor, "*rows width_out"], ...]


def linear_together(x: Input, layers: Sequence[nn.Module]) -> Outputs:
    """Map one input by several layers; in training on a GPU, and in int8, by one product."""
    maps: Any = layers
    if isinstance(layers[0], Int8Linear):  # all are, then
        sizes = [layer.out_features for layer in maps]
        return maps[0].concatenated(maps)(x).split(sizes, dim=-1)
    x = for_products(x)
    if fusing_pays(x, layers):
        return fused_projection(x, layers)
    return tuple(layer(x) for layer in layers)


def fusing_pays(x: Input, layers: Sequence[nn.Module]) -> bool:
    """Whether one product is faster: for plain, unsharded layers in training on a GPU."""
    return (
        x.device.type != "cpu"
        and torch.is_grad_enabled()
        and all(type(layer) is Linear and type(layer.weight) is nn.Parameter for layer in layers)
    )


def fused_projection(x: Input, layers: Sequence[Any]) -> Outputs:
    """Map one input by several layers, all with biases or none; their weights are concatenated."""
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return F.linear(x, weight, bias).split([layer.out_features for layer in layers], dim=-1)
