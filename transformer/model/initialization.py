"""Initial weights, as in the paper's implementations (tensor2tensor, fairseq)."""

import math
from typing import Any

from torch import nn

from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.layers.embedding import TokenEmbedding
from transformer.model.layers.linear import Linear
from transformer.model.positions.absolute import LearnedPositions
from transformer.model.positions.t5_buckets import BucketBias
from transformer.settings.model import ModelConfig


def initialize(model: Any) -> None:
    """Draw and tie the weights of a Transformer or SingleStack; add its adapters (LoRA), if any."""
    config: ModelConfig = model.config
    draw_weights(model, model.projection, config)
    model.tie_weights()
    if config.lora_rank:
        from transformer.model.layers.lora import add_adapters

        add_adapters(model, config.lora_rank, config.lora_alpha)


def draw_weights(model: nn.Module, projection: nn.Linear, config: ModelConfig) -> None:
    """Draw the weights of a model whose projection is not tied yet, in the order of its modules.

    Linear layers follow Glorot and Bengio 2010. The projections of queries, keys and values have a
    gain of ``1 / sqrt(2)``, as one matrix of all three has. Biases are zero. Embeddings, trained
    positions and the output projection are normal with variance ``1 / d_model``. Layers of torch
    in a user's own module keep what its constructor gave them.
    """
    std = config.d_model**-0.5
    gains: dict[nn.Module, float] = {}
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            # Without a scale, the scores begin as small as with it.
            scale = 1.0 if config.scale_scores else module.head_dim**-0.5
            gains[module.query] = scale / math.sqrt(2)
            gains[module.key] = gains[module.value] = 1 / math.sqrt(2)
        elif isinstance(module, Linear):
            if module is projection:
                nn.init.normal_(module.weight, std=std)
            else:
                nn.init.xavier_uniform_(module.weight, gain=gains.get(module, 1.0))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, TokenEmbedding):
            nn.init.normal_(module.lookup.weight, std=std)
            nn.init.zeros_(module.lookup.weight[module.lookup.padding_idx])
        elif isinstance(module, LearnedPositions | BucketBias):
            nn.init.normal_(module.table, std=std)
