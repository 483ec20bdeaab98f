"""The simpler simple recurrent unit (SSRU), in place of the self-attention of a decoder layer.

Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine
Translation", section 3.1 (D19-5632). A step reads one state, however long the target is.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer.model.layers.linear import Linear

Hidden = Float[Tensor, "rows target width"]
State = Float[Tensor, "rows width"]


class SSRU(nn.Module):
    """``c_t = f_t * c_(t-1) + (1 - f_t) * W x_t`` with ``f_t = sigmoid(W_f x_t + b_f)``.

    The output is ``ReLU(c_t)``; the first state is zero.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.forget = Linear(d_model, d_model)
        self.value = Linear(d_model, d_model, bias=False)

    def forward(self, x: Hidden, state: State | None) -> tuple[Hidden, State]:
        """The outputs, and the state after the last position."""
        forget = self.forget(x).sigmoid()
        states = (1 - forget) * self.value(x)
        if state is not None:
            first = states[:, :1] + forget[:, :1] * state[:, None]
            states = torch.cat((first, states[:, 1:]), dim=1)
        states = scan(forget, states)
        return states.relu(), states[:, -1]


def scan(decay: Hidden, added: Hidden) -> Hidden:
    """``c_t = decay_t * c_(t-1) + added_t`` in ``log2(target)`` passes (Hillis, Steele 1986)."""
    span = 1
    while span < added.size(1):
        earlier = decay[:, span:] * added[:, :-span]
        added = torch.cat((added[:, :span], added[:, span:] + earlier), dim=1)
        decay = torch.cat((decay[:, :span], decay[:, span:] * decay[:, :-span]), dim=1)
        span *= 2
    return added
