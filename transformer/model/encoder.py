"""The encoder: source embeddings to memory (Vaswani et al. 2017, figure 1, left).

It knows nothing of vocabularies, targets or decoding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer.model.attention import MultiHeadAttention
from transformer.model.feedforward import FeedForward
from transformer.model.norm import Residual


@dataclass(frozen=True)
class Memory:
    """What the decoder attends to: the encoded source and where it is real."""

    hidden: Float[Tensor, "batch source width"]
    mask: Bool[Tensor, "batch 1 1 source"]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each with its residual."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        attention_residual: Residual,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_residual = attention_residual
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    def forward(
        self,
        hidden: Float[Tensor, "batch source width"],
        mask: Bool[Tensor, "#batch 1 #query source"],
    ) -> Float[Tensor, "batch source width"]:
        """One layer of the left half of figure 1."""
        hidden = self.attention_residual(hidden, lambda x: self.attention(x, x, x, mask))
        return self.feed_forward_residual(hidden, self.feed_forward)


class Encoder(nn.Module):
    """A stack of layers; ``final_norm`` closes a pre-norm stack."""

    def __init__(self, layers: Sequence[EncoderLayer], final_norm: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm

    def forward(
        self,
        hidden: Float[Tensor, "batch source width"],
        mask: Bool[Tensor, "#batch 1 #query source"],
    ) -> Float[Tensor, "batch source width"]:
        """Encode every position in the light of all others."""
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.final_norm(hidden)
