"""The types that autocast gives to matrix products."""

import torch
from jaxtyping import Float
from torch import Tensor


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
