"""ModelConfig to Transformer: builds the modules of a config."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from torch import nn
from torch.nn import functional as F

from transformer.common.errors import InputError
from transformer.common.own_code import own_class
from transformer.model.attention.attention_context import (
    Preparation,
    StackContext,
    prepare_dense,
)
from transformer.model.attention.kernels.flex import auto, flex, prepare_auto, prepare_flex
from transformer.model.attention.kernels.sdpa import Sdpa, prepare_sdpa
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.scaled_dot_product import (
    Formula,
    Kernel,
    attend_with_weights,
    eager,
)
from transformer.model.decoder import Decoder, DecoderLayer, RecurrentDecoderLayer
from transformer.model.encoder import Encoder, EncoderLayer
from transformer.model.initialization import initialize
from transformer.model.layers.embedding import Embedding, TokenEmbedding, VectorEmbedding
from transformer.model.layers.feedforward import Activation, FeedForward, GatedFeedForward
from transformer.model.layers.linear import Linear
from transformer.model.layers.norm import build_final_norm, build_norm
from transformer.model.layers.recurrence import SSRU
from transformer.model.layers.residual import PostNorm, PreNorm, Residual, SandwichNorm
from transformer.model.positions.absolute import LearnedPositions, SinusoidalPositions
from transformer.model.positions.alibi import AlibiBias
from transformer.model.positions.rotary import RotaryPositions
from transformer.model.positions.t5_buckets import BucketBias
from transformer.model.transformer import Transformer
from transformer.settings.model import ActivationName, ModelConfig, PatternName
from transformer.settings.sources import STRIDES

Layer = TypeVar("Layer", EncoderLayer, DecoderLayer)


def build_transformer(config: ModelConfig) -> Transformer:
    """Build and initialize a model; raises InputError if it has no decoder."""
    model = assemble_transformer(config)
    initialize(model)
    return model


def assemble_transformer(config: ModelConfig) -> Transformer:
    """The modules of a model, to be initialized or loaded."""
    if config.decoder_layers == 0:
        raise InputError("model.decoder_layers=0 leaves no decoder; set at least 1")
    if (config.decoder_start or 0) >= config.target_vocab_size:
        raise InputError(f"model.decoder_start={config.decoder_start} is not in the vocabulary")
    source_embedding: Embedding | VectorEmbedding
    if config.front_end is not None:
        source_embedding = build_vector_embedding(config)
        target = build_token_embedding(config, config.target_vocab_size)
    else:
        source = build_token_embedding(config, config.source_vocab_size)
        source_embedding = build_embedding(
            config, source, config.source_token_dropout, length=config.source_positions
        )
        target = source
        if config.tie_embeddings in ("none", "decoder"):
            target = build_token_embedding(config, config.target_vocab_size)
    return Transformer(
        config,
        projection=build_projection(config),
        source_embedding=source_embedding,
        target_embedding=build_embedding(config, target, config.target_token_dropout),
        encoder=build_encoder(config),
        decoder=build_decoder(config),
    )


def build_token_embedding(config: ModelConfig, size: int) -> TokenEmbedding:
    """The embedding of a vocabulary of this size."""
    return TokenEmbedding(size, config.d_model, config.pad, scaled=config.scale_embedding)


def build_projection(config: ModelConfig) -> Linear:
    """The linear map of hidden states to logits."""
    projection = Linear(config.d_model, config.target_vocab_size, bias=bool(config.output_bias))
    if config.output_bias == "fixed":
        projection.bias.requires_grad_(False)
    return projection


def build_embedding(
    config: ModelConfig, tokens: TokenEmbedding, token_dropout: float, length: int | None = None
) -> Embedding:
    """The input of a stack: tokens, absolute positions (if the config has them), dropout."""
    return Embedding(
        tokens,
        build_positions(config, length or config.max_length),
        norm=build_norm(config) if config.embedding_norm else nn.Identity(),
        token_dropout=token_dropout,
        dropout=config.dropout,
    )


def build_positions(
    config: ModelConfig, length: int
) -> SinusoidalPositions | LearnedPositions | None:
    """The positions that are added to the input of a stack; None if they are in its attention."""
    if config.positions in ("sinusoidal", "fairseq"):
        fairseq = config.positions == "fairseq"
        return SinusoidalPositions(config.d_model, length, fairseq=fairseq)
    return LearnedPositions(config.d_model, length) if config.positions == "learned" else None


def build_vector_embedding(config: ModelConfig) -> VectorEmbedding:
    """The input of an encoder that reads vectors; `SourceConfig.channels` numbers each."""
    channels = config.source_vocab_size
    front_end: nn.Module
    if config.front_end in ("whisper", "s2t"):
        from transformer.model.front_ends.convolutions import (
            StridedConvolutions,
            WhisperConvolutions,
        )

        kind = WhisperConvolutions if config.front_end == "whisper" else StridedConvolutions
        front_end = kind(channels // STRIDES[config.front_end], config.d_model)
    elif config.front_end == "patches":
        from transformer.model.front_ends.patches import PatchEmbedding

        front_end = PatchEmbedding(channels, config.d_model, class_token=config.class_token)
    else:
        from transformer.model.front_ends.linear import LinearFrontEnd

        front_end = LinearFrontEnd(channels, config.d_model)
    return VectorEmbedding(
        front_end,
        build_positions(config, config.source_positions),
        width=config.d_model,
        scaled=config.scale_embedding and config.front_end in ("whisper", "s2t"),
        norm=build_norm(config) if config.embedding_norm else nn.Identity(),
        dropout=config.dropout,
    )


def build_encoder(config: ModelConfig, *, causal: bool = False) -> Encoder:
    """The left stack; with ``causal``, the stack of a language model."""
    layers = [build_encoder_layer(config, causal=causal) for _ in range(config.encoder_layers)]
    attention_context = build_attention_context(config, config.pattern, causal=causal)
    layers = shared_modules(layers, config)
    return Encoder(layers, attention_context, build_final_norm(config), config.layer_drop)


def build_decoder(config: ModelConfig) -> Decoder:
    """The right stack."""
    layers = [build_decoder_layer(config) for _ in range(config.decoder_layers)]
    pattern = config.decoder_pattern or config.pattern
    attention_context = build_attention_context(config, pattern, causal=True)
    layers = shared_modules(layers, config)
    return Decoder(layers, attention_context, build_final_norm(config), config.layer_drop)


def shared_modules(layers: list[Layer], config: ModelConfig) -> list[Layer]:
    """Let the layers of a stack share modules (Lan et al. 2020, "ALBERT")."""
    if config.share_layers == "all":
        return layers[:1] * len(layers)
    names = {
        "none": (),
        "attention": ("attention", "self_attention", "cross_attention"),
        "feed_forward": ("feed_forward",),
    }[config.share_layers]
    for name, module in layers[0].named_children():
        if name in names:
            for layer in layers:
                setattr(layer, name, module)
    return layers


def build_encoder_layer(config: ModelConfig, *, causal: bool) -> EncoderLayer:
    """Self-attention and feed-forward; a convolution before them if the config has one."""
    kind: Callable[..., EncoderLayer] = EncoderLayer
    if config.convolution_window is not None:
        from transformer.model.convolution import ConvolutionEncoderLayer, GatedConvolution

        convolution = GatedConvolution(config.d_model, config.convolution_window, causal=causal)
        kind = partial(
            ConvolutionEncoderLayer,
            convolution=convolution,
            convolution_residual=build_residual(config),
        )
    elif config.encoder_layer is not None:
        kind = own_class("model.encoder_layer", config.encoder_layer, EncoderLayer)
    return kind(
        build_attention(config),
        build_feed_forward(config),
        attention_residual=build_residual(config),
        feed_forward_residual=build_residual(config),
    )


def build_decoder_layer(config: ModelConfig) -> DecoderLayer:
    """Masked self-attention or a recurrence, cross-attention and feed-forward."""
    kind: type[DecoderLayer] = DecoderLayer
    before: nn.Module = build_attention(config)
    if config.decoder_layer == "ssru":
        kind = RecurrentDecoderLayer
        before = SSRU(config.d_model)
    elif config.decoder_layer is not None:
        kind = own_class("model.decoder_layer", config.decoder_layer, DecoderLayer)
    return kind(
        before,
        build_attention(config, cross=True),
        build_feed_forward(config),
        self_residual=build_residual(config),
        cross_residual=build_residual(config),
        feed_forward_residual=build_residual(config),
    )


def build_attention_context(
    config: ModelConfig, pattern: PatternName, *, causal: bool
) -> StackContext:
    """Mask, pattern and positions of the attentions of a stack, for their kernel."""
    bias: AlibiBias | BucketBias | None = None
    if config.positions == "alibi":
        bias = AlibiBias(config.num_heads)
    elif config.positions == "relative":
        bias = BucketBias(
            config.num_heads,
            buckets=config.relative_buckets,
            max_distance=config.relative_max_distance,
            causal=causal,
        )
    rotary = RotaryPositions(config.d_k) if config.positions == "rotary" else None
    allowed = None
    if pattern != "full":
        from transformer.model.attention.sparse_patterns import build_pattern

        allowed = build_pattern(config, pattern)
    prepare = attention_functions(config).prepare
    return StackContext(causal=causal, pattern=allowed, bias=bias, rotary=rotary, prepare=prepare)


class AttentionFunctions(NamedTuple):
    """What all attentions of a model compute, and how."""

    formula: Formula
    kernel: Kernel | None
    """Computes this formula, and no other; None: the formula computes."""
    prepare: Preparation
    """Fills the tensors that the kernel reads once a stack."""


def attention_functions(config: ModelConfig) -> AttentionFunctions:
    """The formula of the paper, and the kernel for it."""
    group = config.num_heads // (config.num_kv_heads or config.num_heads)
    prepare = partial(prepare_auto, dropout=config.attention_dropout, group=group, width=config.d_k)
    kernels: dict[str, tuple[Kernel, Preparation]] = {
        "eager": (eager, prepare_dense),
        "sdpa": (Sdpa(config.sdpa_backend), prepare_sdpa),
        "flex": (flex, prepare_flex),
        "auto": (auto, prepare),
    }
    return AttentionFunctions(attend_with_weights, *kernels[config.attention])


def build_attention(config: ModelConfig, *, cross: bool = False) -> MultiHeadAttention:
    """Self-attention or cross-attention."""
    functions = attention_functions(config)
    return MultiHeadAttention(
        config.d_model,
        config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        query_key_norm=not cross if config.query_key_norm == "self" else config.query_key_norm,
        scale_scores=config.scale_scores,
        biases=config.biases,
        dropout=config.attention_dropout,
        formula=functions.formula,
        kernel=functions.kernel,
    )


def build_feed_forward(config: ModelConfig) -> nn.Module:
    """The feed-forward block."""
    gelu_tanh = partial(F.gelu, approximate="tanh")
    activations: dict[ActivationName, Activation] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": gelu_tanh,
        "swish": F.silu,
        "swiglu": F.silu,
        "geglu": F.gelu,
        "geglu_tanh": gelu_tanh,
    }
    block: Callable[..., nn.Module] = partial(FeedForward, bias=config.biases)
    if config.feed_forward is not None:
        block = own_class("model.feed_forward", config.feed_forward, nn.Module)
    elif config.activation in ("swiglu", "geglu", "geglu_tanh"):
        block = partial(GatedFeedForward, bias=config.biases)
    try:
        return block(
            config.d_model,
            config.ffn_dim,
            activation=activations[config.activation],
            dropout=config.activation_dropout,
        )
    except TypeError as error:
        raise InputError(
            f"model.feed_forward={config.feed_forward} is made with (d_model, ffn_dim, *, "
            f"activation, dropout): {error}"
        ) from error


def build_residual(config: ModelConfig) -> Residual:
    """The residual connection around a sublayer."""
    norm = build_norm(config)
    if config.norm_order == "pre":
        return PreNorm(norm, config.dropout)
    if config.norm_order == "sandwich":
        return SandwichNorm(norm, build_norm(config), config.dropout)
    return PostNorm(norm, config.dropout)
