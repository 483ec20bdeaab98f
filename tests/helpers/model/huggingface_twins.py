"""Our weights in the models of Hugging Face transformers, by the conventions that they keep.

Nothing here computes or compares. All their models are built from a config, with no download.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from tests.helpers.lazy import hf
from transformer.model.single_stack import SingleStack
from transformer.settings.model import ModelConfig


def spread(ours: nn.Module, seed: int, *, biases: bool = True) -> None:
    """Draw the biases and the norms, which zeros and ones would let a wrong copy pass by."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in ours.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            parameter.data.copy_(0.3 * drawn if biases else torch.zeros_like(drawn))
        elif parameter.dim() == 1:
            parameter.data.copy_(1 + 0.3 * drawn)


def copy(ours: nn.Module, theirs: Any) -> None:
    """A linear map or a norm; where theirs has no bias, ours must be zero."""
    weight, bias = ours.weight, getattr(ours, "bias", None)
    assert isinstance(weight, Tensor) and theirs.weight.shape == weight.shape
    theirs.weight.data.copy_(weight)
    if getattr(theirs, "bias", None) is not None:
        assert isinstance(bias, Tensor)
        theirs.bias.data.copy_(bias)
    else:
        assert bias is None or not torch.any(bias)


def llama(ours: SingleStack) -> Any:
    """Rotary positions need no other order of rows: both pair component i with i + d/2."""
    biases = {"attention_bias": True, "mlp_bias": True}
    return _like_llama(ours, hf.LlamaForCausalLM(hf.LlamaConfig(**_shape(ours.config), **biases)))


def qwen3(ours: SingleStack) -> Any:
    """Llama with norms on queries and keys, and no bias."""
    return _like_llama(ours, hf.Qwen3ForCausalLM(hf.Qwen3Config(**_shape(ours.config))))


def _shape(ours: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": ours.source_vocab_size,
        "hidden_size": ours.d_model,
        "intermediate_size": ours.ffn_dim,
        "num_hidden_layers": ours.encoder_layers,
        "num_attention_heads": ours.num_heads,
        "num_key_value_heads": ours.num_kv_heads,
        "head_dim": ours.d_k,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "pad_token_id": ours.pad,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
    }


def _like_llama(ours: Any, theirs: Any) -> Any:
    # We multiply by sqrt(d_model) after looking up, they keep the products in the table.
    table = ours.embedding.tokens.lookup.weight * math.sqrt(ours.config.d_model)
    theirs.model.embed_tokens.weight.data.copy_(table)
    for layer, block in zip(ours.stack.layers, theirs.model.layers, strict=True):
        attention, twin = layer.attention, block.self_attn
        for name, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
            copy(getattr(attention, name), getattr(twin, f"{letter}_proj"))
        if ours.config.query_key_norm:
            copy(attention.query_norm, twin.q_norm)
            copy(attention.key_norm, twin.k_norm)
        copy(layer.feed_forward.gate, block.mlp.gate_proj)
        copy(layer.feed_forward.inner, block.mlp.up_proj)
        copy(layer.feed_forward.outer, block.mlp.down_proj)
        copy(layer.attention_residual.norm, block.input_layernorm)
        copy(layer.feed_forward_residual.norm, block.post_attention_layernorm)
    copy(ours.stack.final_norm, theirs.model.norm)
    copy(ours.projection, theirs.lm_head)
    return theirs.eval()
