"""A gated convolution over neighbouring positions (Gehring et al. 2017, section 3.2)."""

from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.layers.dropout import HiddenStates
from transformer.model.layers.linear import Linear


class GatedConvolution(nn.Module):
    """``(X * W + b) ⊗ sigmoid(X * V + c)`` over the ``window`` positions around each.

    Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.2. With
    ``causal`` the window ends at its position; else an even one has one more before it than after.
    """

    def __init__(self, d_model: int, window: int, *, causal: bool) -> None:
        super().__init__()
        self.window = window
        self.before = window - 1 if causal else window // 2
        # A linear map of windows, so that adapters and int8 reach it.
        self.linear = Linear(window * d_model, 2 * d_model)

    def forward(
        self, hidden: HiddenStates, mask: Bool[Tensor, "#batch 1 1 length"] | None
    ) -> HiddenStates:
        """Map each window; padding, where the mask is False, and what is outside count as zero."""
        if mask is not None:
            # batch 1 1 length -> batch length 1
            hidden = hidden * mask[:, 0, 0, :, None]
        padded = F.pad(hidden, (0, 0, self.before, self.window - 1 - self.before))
        # batch length width window -> batch length (width window)
        windows = padded.unfold(1, self.window, 1).flatten(2)
        return F.glu(self.linear(windows), dim=-1)
