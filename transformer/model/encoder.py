"""The encoder: source embeddings to memory (Vaswani et al. 2017, figure 1, left)."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transformer.model.attention.attention_context import AttentionContext, StackContext
from transformer.model.attention.masks import Mask
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.layers.dropout import HiddenStates
from transformer.model.layers.layer_drop import layer_is_dropped
from transformer.model.layers.linear import product_dtype
from transformer.model.layers.residual import Residual


@dataclass(frozen=True)
class Memory:
    """The encoded source, and its mask: True at real tokens."""

    hidden: Float[Tensor, "batch source width"]
    mask: Bool[Tensor, "batch 1 1 source"]


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with its residual (section 3.1)."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: nn.Module,
        *,
        attention_residual: Residual,
        feed_forward_residual: Residual,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_residual = attention_residual
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    def forward(self, hidden: HiddenStates, context: AttentionContext) -> HiddenStates:
        """One layer of the left half of figure 1."""
        hidden = self.attention_residual(hidden, lambda x: self.attention.attend(x, x, x, context))
        return self.feed_forward_residual(hidden, self.feed_forward)


class LayerStack(nn.Module):
    """The layers of a stack; training skips each with ``layer_drop``; pre-norm ends with a norm."""

    def __init__(
        self,
        layers: Sequence[nn.Module],
        attention_context: StackContext,
        final_norm: nn.Module,
        layer_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.attention_context = attention_context
        self.final_norm = final_norm
        self.layer_drop = layer_drop


class Encoder(LayerStack):
    """A stack of encoder layers; with a causal context, the stack of a language model."""

    def forward(self, hidden: HiddenStates, mask: Mask | None) -> HiddenStates:
        context = self.attention_context(
            hidden.size(1), 0, mask, hidden.device, dtype=product_dtype(hidden)
        )
        for layer in self.layers:
            if not layer_is_dropped(self.layer_drop, self.training):
                hidden = layer(hidden, context)
        return self.final_norm(hidden)
