"""Our weights in the models of Hugging Face transformers, by the conventions that they keep.

Nothing here computes or compares. All their models are built from a config, with no download.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from tests.helpers.lazy import Lazy, hf
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.layers.feedforward import FeedForward, GatedFeedForward
from transformer.model.layers.residual import PreNorm
from transformer.model.single_stack import SingleStack
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig

hf_longformer = Lazy("transformers.models.longformer.modeling_longformer")
hf_roformer = Lazy("transformers.models.roformer.modeling_roformer")

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swiglu": "silu", "geglu": "gelu"}


def spread(ours: nn.Module, seed: int, *, biases: bool = True) -> None:
    """Draw the biases and the norms, which zeros and ones would let a wrong copy pass by."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in ours.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            parameter.data.copy_(0.3 * drawn if biases else torch.zeros_like(drawn))
        elif parameter.dim() == 1:
            parameter.data.copy_(1 + 0.3 * drawn)
        elif name.endswith("table"):
            parameter.data.copy_(drawn)


def copy(ours: nn.Module, theirs: Any, factor: float = 1.0) -> None:
    """A linear map or a norm; where theirs has no bias, ours must be zero."""
    weight, bias = ours.weight, getattr(ours, "bias", None)
    assert isinstance(weight, Tensor) and theirs.weight.shape == weight.shape
    theirs.weight.data.copy_(weight * factor)
    if getattr(theirs, "bias", None) is not None:
        assert isinstance(bias, Tensor)
        theirs.bias.data.copy_(bias * factor)
    else:
        assert bias is None or not torch.any(bias)


def copy_embedding(ours: SingleStack | Transformer, theirs: nn.Embedding) -> None:
    """We multiply by sqrt(d_model) after looking up, they keep the products in the table."""
    tokens = ours.embedding if isinstance(ours, SingleStack) else ours.source_embedding
    theirs.weight.data.copy_(tokens.tokens.lookup.weight * math.sqrt(ours.config.d_model))


def copy_gated(ours: FeedForward | GatedFeedForward, theirs: Any) -> None:
    """The block of Llama and its kin."""
    assert isinstance(ours, GatedFeedForward)
    copy(ours.gate, theirs.gate_proj)
    copy(ours.inner, theirs.up_proj)
    copy(ours.outer, theirs.down_proj)


def copy_t5_feed_forward(ours: FeedForward | GatedFeedForward, theirs: Any) -> None:
    """T5's ``wi_0`` is the gate."""
    if isinstance(ours, GatedFeedForward):
        copy(ours.gate, theirs.wi_0)
        copy(ours.inner, theirs.wi_1)
    else:
        copy(ours.inner, theirs.wi)
    copy(ours.outer, theirs.wo)


def llama_config(ours: ModelConfig, **changes: Any) -> Any:
    """The shape of ours; it has all biases that ours can have."""
    names = {"attention_bias": True, "mlp_bias": True, "hidden_act": ACTIVATIONS[ours.activation]}
    return hf.LlamaConfig(**(_shape(ours) | names | changes))


def llama(ours: SingleStack, **changes: Any) -> Any:
    """Rotary positions need no other order of rows: both pair component i with i + d/2."""
    return _like_llama(ours, hf.LlamaForCausalLM(llama_config(ours.config, **changes)))


def qwen3(ours: SingleStack) -> Any:
    """Llama with norms on queries and keys, and no bias."""
    return _like_llama(ours, hf.Qwen3ForCausalLM(hf.Qwen3Config(**_shape(ours.config))))


def mistral(ours: SingleStack) -> Any:
    """Llama with a sliding window; theirs counts the token itself, ours counts those before it."""
    window = ours.config.window + 1
    return _like_llama(
        ours, hf.MistralForCausalLM(hf.MistralConfig(**_shape(ours.config), sliding_window=window))
    )


def mpt(ours: Any) -> Any:
    """ALiBi, layer norm and plain GELU, without a bias."""
    theirs = hf.MptForCausalLM(hf.MptConfig(**_shape(ours.config), max_seq_len=64)).eval()
    copy_embedding(ours, theirs.transformer.wte)
    for layer, block in zip(ours.stack.layers, theirs.transformer.blocks, strict=True):
        attention = layer.attention
        projections = (attention.query, attention.key, attention.value)
        block.attn.Wqkv.weight.data.copy_(torch.cat([p.weight for p in projections]))
        assert not any(p.bias.any() for p in projections)
        copy(attention.output, block.attn.out_proj)
        copy(layer.attention_residual.norm, block.norm_1)
        copy(layer.feed_forward_residual.norm, block.norm_2)
        copy(layer.feed_forward.inner, block.ffn.up_proj)
        copy(layer.feed_forward.outer, block.ffn.down_proj)
    copy(ours.stack.final_norm, theirs.transformer.norm_f)
    copy(ours.projection, theirs.lm_head)
    return theirs


def t5_config(ours: ModelConfig) -> Any:
    """The shape of ours."""
    gated = "gated-" if ours.activation in ("swiglu", "geglu") else ""
    names = {
        "d_ff": ours.ffn_dim,
        "num_decoder_layers": ours.decoder_layers,
        "relative_attention_num_buckets": ours.relative_buckets,
        "relative_attention_max_distance": ours.relative_max_distance,
        "feed_forward_proj": gated + ACTIVATIONS[ours.activation],
        "tie_word_embeddings": True,
    }
    config = hf.T5Config(**(_shape(ours) | names))
    # T5 takes the approximation by tanh for its gated GELU, we take GELU itself.
    config.dense_act_fn = ACTIVATIONS[ours.activation]
    return config


def t5(ours: Any) -> Any:
    """One table for both sides and the projection, before which T5 divides by sqrt(d_model)."""
    assert ours.config.tie_embeddings == "all"
    theirs = hf.T5ForConditionalGeneration(t5_config(ours.config)).eval()
    copy_embedding(ours, theirs.shared)
    for stack, twin in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        first = twin.block[0].layer[0].SelfAttention
        first.relative_attention_bias.weight.data.copy_(stack.attention_context.bias.table)
        copy(stack.final_norm, twin.final_layer_norm)
    for layer, block in zip(ours.encoder.layers, theirs.encoder.block, strict=True):
        _copy_t5_attention(layer.attention, layer.attention_residual, block.layer[0])
        copy_t5_feed_forward(layer.feed_forward, block.layer[1].DenseReluDense)
        copy(layer.feed_forward_residual.norm, block.layer[1].layer_norm)
    for layer, block in zip(ours.decoder.layers, theirs.decoder.block, strict=True):
        _copy_t5_attention(layer.self_attention, layer.self_residual, block.layer[0])
        _copy_t5_attention(layer.cross_attention, layer.cross_residual, block.layer[1])
        copy_t5_feed_forward(layer.feed_forward, block.layer[2].DenseReluDense)
        copy(layer.feed_forward_residual.norm, block.layer[2].layer_norm)
    return theirs


def roformer_attention(ours: MultiHeadAttention, num_heads: int) -> Any:
    """RoFormer turns neighbors 2i and 2i + 1 together, we turn i and i + d/2.

    The order of a head's components is free as long as queries and keys share it. The output
    projection is no part of theirs.
    """
    config = hf.RoFormerConfig(hidden_size=ours.query.in_features, num_attention_heads=num_heads)
    theirs = hf_roformer.RoFormerSelfAttention(config).eval()
    for mine, other in ((ours.query, theirs.query), (ours.key, theirs.key)):
        for name in ("weight", "bias"):
            # (head half pair) -> (head pair half)
            rows = getattr(mine, name).unflatten(0, (-1, 2, ours.head_dim // 2))
            getattr(other, name).data.copy_(rows.transpose(1, 2).flatten(0, 2))
    copy(ours.value, theirs.value)
    return theirs


def longformer_attention(ours: MultiHeadAttention, config: ModelConfig) -> Any:
    """Theirs projects for global tokens apart, and counts the window of both sides together.

    The output projection is no part of theirs.
    """
    theirs = hf_longformer.LongformerSelfAttention(
        hf.LongformerConfig(
            hidden_size=config.d_model,
            num_attention_heads=config.num_heads,
            attention_window=[2 * config.window],
        ),
        layer_id=0,
    ).eval()
    for name in ("query", "key", "value"):
        copy(getattr(ours, name), getattr(theirs, name))
        copy(getattr(ours, name), getattr(theirs, f"{name}_global"))
    return theirs


def _shape(ours: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": ours.source_vocab_size,
        "hidden_size": ours.d_model,
        "intermediate_size": ours.ffn_dim,
        "num_hidden_layers": ours.encoder_layers,
        "num_attention_heads": ours.num_heads,
        "num_key_value_heads": ours.num_kv_heads or ours.num_heads,
        "head_dim": ours.d_k,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "pad_token_id": ours.pad,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
    }


def _like_llama(ours: Any, theirs: Any) -> Any:
    copy_embedding(ours, theirs.model.embed_tokens)
    for layer, block in zip(ours.stack.layers, theirs.model.layers, strict=True):
        attention, twin = layer.attention, block.self_attn
        for name, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
            copy(getattr(attention, name), getattr(twin, f"{letter}_proj"))
        if ours.config.query_key_norm:
            copy(attention.query_norm, twin.q_norm)
            copy(attention.key_norm, twin.k_norm)
        copy_gated(layer.feed_forward, block.mlp)
        copy(layer.attention_residual.norm, block.input_layernorm)
        copy(layer.feed_forward_residual.norm, block.post_attention_layernorm)
    copy(ours.stack.final_norm, theirs.model.norm)
    copy(ours.projection, theirs.lm_head)
    return theirs.eval()


def _copy_t5_attention(ours: MultiHeadAttention, residual: PreNorm, theirs: Any) -> None:
    twin = theirs.SelfAttention if hasattr(theirs, "SelfAttention") else theirs.EncDecAttention
    # T5 does not divide the scores by sqrt(d_k).
    copy(ours.query, twin.q, factor=ours.head_dim**-0.5)
    for name, letter in (("key", "k"), ("value", "v"), ("output", "o")):
        copy(getattr(ours, name), getattr(twin, letter))
    copy(residual.norm, theirs.layer_norm)
