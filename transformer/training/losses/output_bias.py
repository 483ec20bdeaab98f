"""Lets a loss, which multiplies hidden states by one matrix, add the bias of the output too."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def joined_bias(
    hidden: Float[Tensor, "*rows width"], projection: nn.Linear
) -> tuple[Float[Tensor, "*rows width_in"], Float[Tensor, "vocab width_in"]]:
    """Hidden states and matrix of the output, whose product are the logits.

    With a bias, it is one more column of the matrix, and each hidden state has a one for it.
    """
    bias: Tensor | None = projection.bias
    if bias is None:
        return hidden, projection.weight
    matrix = torch.cat((projection.weight, bias[:, None]), dim=1)
    return F.pad(hidden, (0, 1), value=1.0), matrix
