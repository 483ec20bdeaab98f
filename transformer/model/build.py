"""ModelConfig to Transformer: the one place where a name becomes a class.

It reads like the architecture and knows nothing of training; initialisation.py fills the weights.
"""

from torch import nn
from torch.nn import functional as F

from transformer.common.errors import InputError
from transformer.model.attention.bias import SelfAttentionBias
from transformer.model.attention.kernels import Sdpa, auto, flex
from transformer.model.attention.multi_head import Kernel, MultiHeadAttention, eager
from transformer.model.attention.relative_positions import AlibiBias, BucketBias, RotaryPositions
from transformer.model.attention.sparse_patterns import (
    BigBird,
    Longformer,
    Pattern,
    Sliding,
    Strided,
)
from transformer.model.config import ActivationName, ModelConfig, PatternName
from transformer.model.decoder import Decoder, DecoderLayer
from transformer.model.encoder import Encoder, EncoderLayer
from transformer.model.initialisation import Stack, deepnorm_scale, initialise
from transformer.model.layers.embedding import TokenEmbedding
from transformer.model.layers.feedforward import Activation, FeedForward, GatedFeedForward
from transformer.model.layers.linear import Linear
from transformer.model.layers.norm import PostNorm, PreNorm, Residual, SandwichNorm
from transformer.model.layers.positions import LearnedPositions, SinusoidalPositions
from transformer.model.transformer import Embedding, PositionTable, Transformer


def build_transformer(config: ModelConfig) -> Transformer:
    """Build and initialise the model that the config describes.

    Raises:
        InputError: It has no decoder.
    """
    if config.decoder_layers == 0:
        raise InputError("model.decoder_layers=0 leaves nothing to translate with; set at least 1")
    source = TokenEmbedding(config.source_vocab_size, config.d_model, config.pad)
    target = source
    if config.tie_embeddings != "all":
        target = TokenEmbedding(config.target_vocab_size, config.d_model, config.pad)
    projection = Linear(config.d_model, config.target_vocab_size, bias=False)
    model = Transformer(
        config,
        source_embedding=build_embedding(config, source, config.source_token_dropout),
        target_embedding=build_embedding(config, target, config.target_token_dropout),
        encoder=build_encoder(config),
        decoder=build_decoder(config),
        projection=projection,
    )
    initialise(model, config)
    nn.init.normal_(projection.weight, std=config.d_model**-0.5)
    if config.tie_embeddings != "none":
        projection.weight = target.lookup.weight
    return model


def build_embedding(config: ModelConfig, tokens: TokenEmbedding, token_dropout: float) -> Embedding:
    """What a stack reads: tokens, their positions, dropout."""
    positions = build_positions(config)
    return Embedding(tokens, positions, token_dropout=token_dropout, dropout=config.dropout)


def build_positions(config: ModelConfig) -> PositionTable | None:
    """Position vectors of one side, where the attention does not know positions itself."""
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_length)
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.d_model, config.max_length)
    return None


def build_encoder(config: ModelConfig, *, causal: bool = False) -> Encoder:
    """The left stack; ``causal`` makes it a language model's."""
    first = build_encoder_layer(config)
    layers = [build_encoder_layer(config, like=first) for _ in range(1, config.encoder_layers)]
    attention_bias = build_attention_bias(config, config.pattern, causal=causal)
    return Encoder([first, *layers], attention_bias, build_final_norm(config), config.layer_drop)


def build_decoder(config: ModelConfig) -> Decoder:
    """The right stack."""
    first = build_decoder_layer(config)
    layers = [build_decoder_layer(config, like=first) for _ in range(1, config.decoder_layers)]
    attention_bias = build_attention_bias(
        config, config.decoder_pattern or config.pattern, causal=True
    )
    return Decoder([first, *layers], attention_bias, build_final_norm(config), config.layer_drop)


def build_encoder_layer(config: ModelConfig, like: EncoderLayer | None = None) -> EncoderLayer:
    """Self-attention and feed-forward; ``like`` hands on what the layers share."""
    if like is not None and config.share_layers == "all":
        return like
    attends = like if config.share_layers == "attention" else None
    feeds = like if config.share_layers == "feed_forward" else None
    return EncoderLayer(
        attends.attention if attends else build_attention(config),
        feeds.feed_forward if feeds else build_feed_forward(config),
        attention_residual=build_residual(config, "encoder"),
        feed_forward_residual=build_residual(config, "encoder"),
    )


def build_decoder_layer(config: ModelConfig, like: DecoderLayer | None = None) -> DecoderLayer:
    """Masked self-attention, cross-attention and feed-forward; ``like`` as in the encoder."""
    if like is not None and config.share_layers == "all":
        return like
    attends = like if config.share_layers == "attention" else None
    feeds = like if config.share_layers == "feed_forward" else None
    return DecoderLayer(
        attends.self_attention if attends else build_attention(config),
        attends.cross_attention if attends else build_attention(config),
        feeds.feed_forward if feeds else build_feed_forward(config),
        self_residual=build_residual(config, "decoder"),
        cross_residual=build_residual(config, "decoder"),
        feed_forward_residual=build_residual(config, "decoder"),
    )


def build_attention_bias(
    config: ModelConfig, pattern: PatternName, *, causal: bool
) -> SelfAttentionBias:
    """Who sees whom in the self-attention of a stack, and what their distance does."""
    heads = config.num_heads
    bias: AlibiBias | BucketBias | None = None
    if config.positions == "alibi":
        bias = AlibiBias(heads)
    elif config.positions == "relative":
        buckets, distance = config.relative_buckets, config.relative_max_distance
        bias = BucketBias(heads, buckets=buckets, max_distance=distance, causal=causal)
    rotary = RotaryPositions(config.d_k) if config.positions == "rotary" else None
    return SelfAttentionBias(
        causal=causal, pattern=build_pattern(config, pattern), bias=bias, rotary=rotary
    )


def build_pattern(config: ModelConfig, name: PatternName) -> Pattern | None:
    """A sparse pattern; None lets everyone see everyone."""
    window, tokens = config.window, config.global_tokens
    blocks, size, seed = config.random_blocks, config.random_block_size, config.pattern_seed
    patterns: dict[PatternName, Pattern | None] = {
        "full": None,
        "sliding": Sliding(window),
        "longformer": Longformer(window, tokens),
        "bigbird": BigBird(window, tokens, blocks, size, seed),
        "strided": Strided(window),
    }
    return patterns[name]


def build_attention(config: ModelConfig) -> MultiHeadAttention:
    """Attention of any of the three kinds; the caller's arguments make the difference."""
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        query_key_norm=config.query_key_norm,
        dropout=config.attention_dropout,
        kernel=build_kernel(config),
    )


def build_kernel(config: ModelConfig) -> Kernel:
    """How attention is computed."""
    kernels: dict[str, Kernel] = {
        "eager": eager,
        "sdpa": Sdpa(config.sdpa_backend),
        "flex": flex,
        "auto": auto,
    }
    return kernels[config.attention]


def build_feed_forward(config: ModelConfig) -> FeedForward | GatedFeedForward:
    """The block after the attention."""
    activation: dict[ActivationName, Activation] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "swiglu": F.silu,
        "geglu": F.gelu,
    }
    gated = config.activation in ("swiglu", "geglu")
    return (GatedFeedForward if gated else FeedForward)(
        config.d_model,
        config.ffn_dim,
        activation=activation[config.activation],
        dropout=config.activation_dropout,
    )


def build_residual(config: ModelConfig, stack: Stack) -> Residual:
    """The connection around a sublayer."""
    norm = build_norm(config)
    if config.norm_order == "pre":
        return PreNorm(norm, config.dropout)
    if config.norm_order == "sandwich":
        return SandwichNorm(norm, build_norm(config), config.dropout)
    scale = deepnorm_scale(config, stack).residual if config.norm_order == "deepnorm" else 1.0
    return PostNorm(norm, config.dropout, scale)


def build_norm(config: ModelConfig) -> nn.Module:
    """Over the width of the residual stream."""
    if config.norm == "rms":
        return nn.RMSNorm(config.d_model, eps=1e-6)
    return nn.LayerNorm(config.d_model)


def build_final_norm(config: ModelConfig) -> nn.Module:
    """A stack whose sum is left unnormalised needs one norm more."""
    return build_norm(config) if config.norm_order in ("pre", "sandwich") else nn.Identity()
