"""The shape of hidden states between the blocks of a model."""

from jaxtyping import Float
from torch import Tensor

HiddenStates = Float[Tensor, "batch length width"]
