"""An encoder layer with a gated convolution over neighboring positions before its attention."""

from typing import Any

from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.attention.attention_context import AttentionContext
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.dropout import HiddenStates
from transformer.model.layers.linear import Linear
from transformer.model.layers.residual import Residual


class GatedConvolution(nn.Module):
    """``(X * W + b) ⊗ sigmoid(X * V + c)`` over the ``window`` positions around each.

    Gehring et al. 2017, section 3.2. With ``causal``, the window ends at its position. Otherwise,
    an even window has one more position before than after.
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
        """Map each window; padding (mask False) and positions outside the text count as zero."""
        if mask is not None:
            # batch 1 1 length -> batch length 1
            hidden = hidden * mask[:, 0, 0, :, None]
        padded = F.pad(hidden, (0, 0, self.before, self.window - 1 - self.before))
        # batch length width window -> batch length (width window)
        windows = padded.unfold(1, self.window, 1).flatten(2)
        return F.glu(self.linear(windows), dim=-1)


class ConvolutionEncoderLayer(EncoderLayer):
    """Convolution, self-attention and feed-forward, each with its residual."""

    def __init__(
        self,
        *args: Any,
        convolution: GatedConvolution,
        convolution_residual: Residual,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        # Checkpoints hold the state of the optimizer in the order of the modules.
        sublayers = dict(self.named_children())
        for name in sublayers:
            delattr(self, name)
        self.convolution = convolution
        self.convolution_residual = convolution_residual
        for name, module in sublayers.items():
            setattr(self, name, module)

    def forward(self, hidden: HiddenStates, context: AttentionContext) -> HiddenStates:
        mask = context.mask
        hidden = self.convolution_residual(hidden, lambda x: self.convolution(x, mask))
        return super().forward(hidden, context)
