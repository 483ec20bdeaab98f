"""Log-mel frames to hidden states, by two convolutions over time.

``source`` holds frames side by side, ``batch length (frame mel)``, as many as one hidden state is
made from; NaN marks padding, single frames of the last vector, too.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer.model.front_ends.padding import without_padding
from transformer.model.layers.dropout import HiddenStates


class _Convolutions(nn.Module):
    """Two convolutions; frames that are padding count as 0 in each, as those beside a sound do."""

    first: nn.Conv1d
    second: nn.Conv1d
    activation: nn.Module

    def __init__(self, mels: int) -> None:
        super().__init__()
        self.mels = mels

    def forward(self, source: Float[Tensor, "batch length channels"]) -> HiddenStates:
        # batch length (frame mel) -> batch (length frame) mel
        frames, real = without_padding(source.unflatten(2, (-1, self.mels)).flatten(1, 2))
        # batch frame mel -> batch mel frame
        hidden = frames.transpose(1, 2)
        hidden = self.activation(self.first(hidden))
        hidden = hidden * _after(self.first, real)[:, None]
        hidden = self.activation(self.second(hidden))
        # batch width length -> batch length width
        return hidden.transpose(1, 2)


def _after(
    convolution: nn.Conv1d, real: Bool[Tensor, "batch frame"]
) -> Bool[Tensor, "batch length"]:
    """Which results of a convolution have a frame of the sound at their center."""
    return real[:, :: convolution.stride[0]]


class WhisperConvolutions(_Convolutions):
    """``GELU(W_2 * GELU(W_1 * x))``, both 3 frames wide, the second with a stride of 2.

    Radford et al. 2022, section 2.2. Two frames become one hidden state.
    """

    def __init__(self, mels: int, width: int) -> None:
        super().__init__(mels)
        self.first = nn.Conv1d(mels, width, kernel_size=3, padding=1)
        self.second = nn.Conv1d(width, width, kernel_size=3, stride=2, padding=1)
        self.activation = nn.GELU()


class StridedConvolutions(_Convolutions):
    """``GLU(W_2 * GLU(W_1 * x))``, both 5 frames wide, with a stride of 2.

    ``GLU(a, b) = a ⊗ sigmoid(b)``. Wang et al. 2020, "fairseq S2T" (Conv1dSubsampler of its code),
    after Synnaeve et al. 2020. Four frames become one hidden state. Each convolution has
    ``2 * width`` channels, which GLU halves.
    """

    def __init__(self, mels: int, width: int) -> None:
        super().__init__(mels)
        self.first = nn.Conv1d(mels, 2 * width, kernel_size=5, stride=2, padding=2)
        self.second = nn.Conv1d(width, 2 * width, kernel_size=5, stride=2, padding=2)
        self.activation = nn.GLU(dim=1)
