"""ModelConfig to Transformer: the one place where a name becomes a class, and the initialisation.

It reads like the architecture and knows nothing of training.
"""

import math

from torch import nn

from transformer.model.attention import MultiHeadAttention
from transformer.model.config import ModelConfig
from transformer.model.decoder import Decoder, DecoderLayer
from transformer.model.embedding import TokenEmbedding
from transformer.model.encoder import Encoder, EncoderLayer
from transformer.model.feedforward import FeedForward
from transformer.model.norm import Residual
from transformer.model.positions import LearnedPositions, SinusoidalPositions
from transformer.model.transformer import Embedding, PositionTable, Transformer


def build_transformer(config: ModelConfig) -> Transformer:
    """Build and initialise the model that the config describes."""
    source = TokenEmbedding(config.source_vocab_size, config.d_model, config.pad)
    target = source
    if config.tie_embeddings != "all":
        target = TokenEmbedding(config.target_vocab_size, config.d_model, config.pad)
    projection = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
    model = Transformer(
        config,
        source_embedding=Embedding(source, build_positions(config), config.dropout),
        target_embedding=Embedding(target, build_positions(config), config.dropout),
        encoder=build_encoder(config),
        decoder=build_decoder(config),
        projection=projection,
    )
    initialise(model)
    if config.tie_embeddings != "none":
        projection.weight = target.lookup.weight
    return model


def build_positions(config: ModelConfig) -> PositionTable:
    """Position vectors of one side."""
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_length)
    return SinusoidalPositions(config.d_model, config.max_length)


def build_encoder(config: ModelConfig) -> Encoder:
    """The left stack."""
    layers = [build_encoder_layer(config) for _ in range(config.encoder_layers)]
    return Encoder(layers, build_final_norm(config))


def build_decoder(config: ModelConfig) -> Decoder:
    """The right stack."""
    layers = [build_decoder_layer(config) for _ in range(config.decoder_layers)]
    return Decoder(layers, build_final_norm(config))


def build_encoder_layer(config: ModelConfig) -> EncoderLayer:
    """Self-attention and feed-forward."""
    return EncoderLayer(
        build_attention(config),
        build_feed_forward(config),
        attention_residual=build_residual(config),
        feed_forward_residual=build_residual(config),
    )


def build_decoder_layer(config: ModelConfig) -> DecoderLayer:
    """Masked self-attention, cross-attention and feed-forward."""
    return DecoderLayer(
        build_attention(config),
        build_attention(config),
        build_feed_forward(config),
        self_residual=build_residual(config),
        cross_residual=build_residual(config),
        feed_forward_residual=build_residual(config),
    )


def build_attention(config: ModelConfig) -> MultiHeadAttention:
    """Attention of any of the three kinds; the caller's arguments make the difference."""
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        dropout=config.attention_dropout,
        kernel=config.attention,
    )


def build_feed_forward(config: ModelConfig) -> FeedForward:
    """The block after the attention."""
    return FeedForward(
        config.d_model,
        config.ffn_dim,
        activation=config.activation,
        dropout=config.activation_dropout,
    )


def build_residual(config: ModelConfig) -> Residual:
    """The connection around a sublayer."""
    return Residual(config.d_model, order=config.norm_order, dropout=config.dropout)


def build_final_norm(config: ModelConfig) -> nn.Module:
    """A pre-norm stack leaves its sum unnormalised, and needs one norm more."""
    return nn.LayerNorm(config.d_model) if config.norm_order == "pre" else nn.Identity()


def initialise(model: Transformer) -> None:
    """Initialise as the paper's implementations do (tensor2tensor, fairseq).

    Linear layers by Glorot and Bengio 2010, query, key and value as if they were one matrix,
    biases zero, embeddings normal with variance ``1 / d_model``.
    """
    std = model.config.d_model**-0.5
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.table, std=std)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            for projection in (module.query, module.key, module.value):
                nn.init.xavier_uniform_(projection.weight, gain=1 / math.sqrt(2))
    nn.init.normal_(model.projection.weight, std=std)
