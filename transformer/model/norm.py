"""Where a sublayer meets the residual stream: dropout, sum and layer norm.

It does not know which sublayer it wraps.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from transformer.model.config import NormOrder
from transformer.model.dropout import Dropout


class Residual(nn.Module):
    """The connection around every sublayer.

    ``post``: ``LayerNorm(x + Dropout(Sublayer(x)))``, Vaswani et al. 2017, section 3.1.
    ``pre``: ``x + Dropout(Sublayer(LayerNorm(x)))``, Xiong et al. 2020, "On Layer Normalization
    in the Transformer Architecture".
    """

    def __init__(self, d_model: int, *, order: NormOrder, dropout: float) -> None:
        super().__init__()
        self.order = order
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        hidden: Float[Tensor, "batch length width"],
        sublayer: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "batch length width"]:
        """Run the sublayer and add what it finds to the stream."""
        if self.order == "pre":
            return hidden + self.dropout(sublayer(self.norm(hidden)))
        return self.norm(hidden + self.dropout(sublayer(hidden)))
