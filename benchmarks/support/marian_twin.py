"""Our weights in Hugging Face's ``MarianMTModel``, the architecture of Vaswani et al. 2017.

It does not know checkpoints, texts or how the twin is searched. Nothing is downloaded.
"""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from transformer.data.batching.batch import Batch
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.embedding import Embedding
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig
from transformer.settings.tokenizer import BOS, EOS, PAD

HAS: dict[str, Any] = {
    "norm": "layer",
    "norm_order": "post",
    "positions": "sinusoidal",
    "activation": "relu",
    "pattern": "full",
    "share_layers": "none",
    "tie_embeddings": "all",
    "num_kv_heads": None,
    "head_dim": None,
    "query_key_norm": False,
}
"""What Marian is; of all other settings it has every value."""


def marian(ours: Transformer, attention: str = "sdpa") -> MarianMTModel:
    """The twin, in evaluation mode; it is a copy and shares no memory.

    Args:
        ours: The model.
        attention: How theirs computes it: ``sdpa``, which it does unless told, or ``eager``.

    Raises:
        ValueError: Marian is another architecture.
    """
    config = ours.config
    for name, value in HAS.items():
        if (found := getattr(config, name)) != value:
            raise ValueError(f"model.{name}={found}: Marian has {value}")
    theirs = MarianMTModel(marian_config(config)).eval()
    theirs.set_attn_implementation(attention)
    theirs.generation_config = GenerationConfig.from_model_config(theirs.config)
    with torch.no_grad():
        _fill(ours, theirs)
    return theirs


def logits(model: MarianMTModel, batch: Batch) -> Tensor:
    """Logits of the model for a batch of ours, (batch, target positions, vocabulary)."""
    found: Tensor = model(
        input_ids=batch.source,
        attention_mask=(batch.source != PAD).long(),
        decoder_input_ids=batch.target_input,
        use_cache=False,
    ).logits
    return found


def marian_config(ours: ModelConfig) -> MarianConfig:
    """Theirs of the same sizes."""
    return MarianConfig(
        vocab_size=ours.target_vocab_size,
        max_position_embeddings=ours.max_length,
        d_model=ours.d_model,
        encoder_layers=ours.encoder_layers,
        decoder_layers=ours.decoder_layers,
        encoder_attention_heads=ours.num_heads,
        decoder_attention_heads=ours.num_heads,
        encoder_ffn_dim=ours.ffn_dim,
        decoder_ffn_dim=ours.ffn_dim,
        activation_function="relu",
        dropout=ours.dropout,
        attention_dropout=ours.attention_dropout,
        activation_dropout=ours.activation_dropout,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        # At the longest length ours ends too.
        forced_eos_token_id=EOS,
    )


def _fill(ours: Transformer, theirs: Any) -> None:
    assert isinstance(ours.source_embedding, Embedding)
    theirs.model.shared.weight.copy_(ours.source_embedding.tokens.lookup.weight)
    theirs.final_logits_bias.zero_()
    # Theirs keeps sines before cosines, ours takes turns.
    positions = ours.source_embedding.positions
    assert positions is not None
    table = positions(ours.config.max_length)
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight.copy_(table)
    encoder = cast(Iterable[EncoderLayer], ours.encoder.layers)
    for layer, twin in zip(encoder, theirs.model.encoder.layers, strict=True):
        _copy_attention(layer.attention, twin.self_attn)
        _copy(layer.attention_residual.norm, twin.self_attn_layer_norm)
        _copy_feed_forward(layer, twin)
    decoder = cast(Iterable[DecoderLayer], ours.decoder.layers)
    for block, twin in zip(decoder, theirs.model.decoder.layers, strict=True):
        _copy_attention(block.self_attention, twin.self_attn)
        _copy(block.self_residual.norm, twin.self_attn_layer_norm)
        _copy_attention(block.cross_attention, twin.encoder_attn)
        _copy(block.cross_residual.norm, twin.encoder_attn_layer_norm)
        _copy_feed_forward(block, twin)


def _copy_attention(ours: MultiHeadAttention, theirs: Any) -> None:
    for name, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "out")):
        _copy(getattr(ours, name), getattr(theirs, f"{letter}_proj"))


def _copy_feed_forward(ours: EncoderLayer | DecoderLayer, theirs: Any) -> None:
    feed_forward: Any = ours.feed_forward
    _copy(feed_forward.inner, theirs.fc1)
    _copy(feed_forward.outer, theirs.fc2)
    _copy(ours.feed_forward_residual.norm, theirs.final_layer_norm)


def _copy(ours: nn.Module, theirs: Any) -> None:
    theirs.weight.copy_(cast(Tensor, ours.weight))
    theirs.bias.copy_(cast(Tensor, ours.bias))
