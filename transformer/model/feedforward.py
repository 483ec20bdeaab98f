"""The position-wise feed-forward block (Vaswani et al. 2017, section 3.3).

It sees one position at a time and knows nothing of the others.
"""

from jaxtyping import Float
from torch import Tensor, nn

from transformer.model.config import Activation
from transformer.model.dropout import Dropout

ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


class FeedForward(nn.Module):
    """``FFN(x) = activation(x W_1 + b_1) W_2 + b_2`` (equation 2)."""

    def __init__(
        self, d_model: int, ffn_dim: int, *, activation: Activation, dropout: float
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, ffn_dim)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(ffn_dim, d_model)

    def forward(
        self, hidden: Float[Tensor, "batch length width"]
    ) -> Float[Tensor, "batch length width"]:
        """Widen, activate, narrow."""
        return self.outer(self.dropout(self.activation(self.inner(hidden))))
