"""torch.nn.Transformer in the shape of one of our models, with the parts that it leaves out.

It does not know how it is trained. Its weights are its own.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transformer.model.positions.absolute import SinusoidalPositions
from transformer.model.transformer import Transformer
from transformer.settings.tokenizer import PAD


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with the embeddings and the projection that it leaves to its user."""

    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        config = ours.config
        self.embedding = nn.Embedding(config.target_vocab_size, config.d_model, PAD)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.positions = SinusoidalPositions(config.d_model, config.max_length)
        self.scale = config.d_model**0.5
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.encoder_layers,
            config.decoder_layers,
            config.ffn_dim,
            config.dropout,
            batch_first=True,
        )
        _drop_outside_only(self.transformer)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """The logits."""
        length = target.size(1)
        padding = source == PAD
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits: Tensor = F.linear(hidden, self.embedding.weight)
        return logits

    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens and their positions."""
        embedded = self.embedding(tokens) * self.scale + self.positions(tokens.size(1), 0)
        dropped: Tensor = self.dropout(embedded)
        return dropped


def _drop_outside_only(transformer: nn.Transformer) -> None:
    """Leave out the dropout that ours and Marian do not have here.

    That is of attention weights, and inside the feed-forward block.
    """
    for module in transformer.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            module.dropout = nn.Identity()  # type: ignore[assignment]
