"""Initial weights, as the paper's implementations draw them (tensor2tensor, fairseq)."""

import math
from typing import Literal, NamedTuple

from torch import nn

from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.relative_positions import BucketBias
from transformer.model.config import ModelConfig
from transformer.model.decoder import Decoder
from transformer.model.encoder import Encoder
from transformer.model.layers.embedding import LearnedPositions, TokenEmbedding
from transformer.model.layers.feedforward import FeedForward, GatedFeedForward

Stack = Literal["encoder", "decoder"]


def initialise(
    model: nn.Module, projection: nn.Linear, tokens: TokenEmbedding, config: ModelConfig
) -> None:
    """Draw the weights of a model, and add its adapters (LoRA).

    Linear layers by Glorot and Bengio 2010, those of queries, keys and values with a gain of
    ``1 / sqrt(2)`` (as one matrix of all three), biases zero, embeddings and trained positions
    normal with variance ``1 / d_model``. DeepNorm draws attention and feed-forward differently.
    The output projection is drawn like an embedding, or shares the table of ``tokens``.
    """
    std = config.d_model**-0.5
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, LearnedPositions | BucketBias):
            nn.init.normal_(module.table, std=std)
    _draw_attention(model)
    if config.norm_order == "deepnorm":
        _draw_deepnorm(model, config)
    nn.init.normal_(projection.weight, std=std)
    if config.tie_embeddings != "none":
        projection.weight = tokens.lookup.weight
    if config.lora_rank:
        from transformer.model.layers.lora import add_adapters

        add_adapters(model, config.lora_rank, config.lora_alpha)


def _draw_attention(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            for linear in (module.query, module.key, module.value):
                nn.init.xavier_uniform_(linear.weight, gain=1 / math.sqrt(2))


class DeepNormScale(NamedTuple):
    """Alpha and beta of a stack in the paper."""

    residual: float
    """Factor of the residual stream in each sum."""
    weights: float
    """Gain of the initial feed-forward, value and output weights."""


def deepnorm_scale(config: ModelConfig, stack: Stack) -> DeepNormScale:
    """The scale that bounds the updates of deep stacks: Wang et al. 2022, "DeepNet", figure 2."""
    n, m = config.encoder_layers, config.decoder_layers
    if m == 0:
        return DeepNormScale((2 * n) ** 0.25, (8 * n) ** -0.25)
    if stack == "encoder":
        return DeepNormScale(0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16))
    return DeepNormScale((3 * m) ** 0.25, (12 * m) ** -0.25)


def _draw_deepnorm(model: nn.Module, config: ModelConfig) -> None:
    """Draw attention and feed-forward as in figure 2 of the paper."""
    for stack in model.modules():
        if not isinstance(stack, Encoder | Decoder):
            continue
        name: Stack = "encoder" if isinstance(stack, Encoder) else "decoder"
        gain = deepnorm_scale(config, name).weights
        for module in stack.modules():
            gains: dict[nn.Module, float] = {}
            if isinstance(module, MultiHeadAttention):
                gains = {
                    module.query: 1.0,
                    module.key: 1.0,
                    module.value: gain,
                    module.output: gain,
                }
            elif isinstance(module, FeedForward | GatedFeedForward):
                gains = dict.fromkeys(module.children(), gain)
            for linear, own in gains.items():
                if isinstance(linear, nn.Linear):
                    nn.init.xavier_normal_(linear.weight, own)
