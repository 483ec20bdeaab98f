"""A model for CTranslate2 (Klein et al. 2020, section 6), as ``ctranslate2.specs`` has it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from transformer.checkpoint.checkpoint import Checkpoint, validate_size
from transformer.checkpoint.exported import read_settings
from transformer.checkpoint.run_directory import ENGINE_WEIGHTS as WEIGHTS
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.shortlist import Shortlist
from transformer.interchange.format_limits import CTRANSLATE2, check_expressible, check_formula
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.embedding import Embedding
from transformer.model.layers.feedforward import GatedFeedForward
from transformer.model.positions.t5_buckets import BucketBias
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

SETTINGS = "transformer.json"
"""Settings for a translation without the run; the engine does not read them."""

ENGINE_LENGTH = 1024
"""Default limit of the engine for the subwords of a source."""


def write_ctranslate2(
    model: Transformer, tokenizer: Tokenizer, folder: Path, quantization: str = "float32"
) -> None:
    """Write ``model.bin``, ``config.json`` and the vocabularies; InputError if not expressible."""
    check_expressible(model.config, "CTranslate2", CTRANSLATE2)
    check_formula(model, "CTranslate2")
    if tokenizer.tags.given:
        raise InputError(
            "data.target_tag=both, and a first symbol as that of BART, cannot be expressed in "
            "CTranslate2, only data.target_tag=true or false"
        )
    spec = _spec(model.config)
    _fill(spec, model)
    # Our searches never choose these tokens; the bias keeps the engine from it.
    never = torch.zeros(model.config.target_vocab_size)
    never[[PAD, BOS, *tokenizer.never_written]] = -1e4
    if model.projection.bias is not None:
        never += model.projection.bias.detach().float().cpu()
    spec.decoder.projection.bias = _array(never)
    source = tokenizer.source_subwords(range(tokenizer.source_vocab_size))
    target = tokenizer.subwords(range(tokenizer.target_vocab_size))
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.bos_token = spec.config.decoder_start_token = target[BOS]
    spec.config.eos_token, spec.config.unk_token = target[EOS], target[UNK]
    spec.config.add_source_eos = True
    norms = (m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm))
    spec.config.layer_norm_epsilon = next(norms).eps
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))


def vocabulary_map(file: Path, tokenizer: Tokenizer) -> str:
    """A line for each source token: it, a tab, its candidates; an empty one for all sources."""
    shortlist = Shortlist.load(file, tokenizer)
    source = tokenizer.source_subwords(range(tokenizer.source_vocab_size))
    target = tokenizer.subwords(range(tokenizer.target_vocab_size))
    rows = [("", shortlist.common), *zip(source, shortlist.candidates, strict=True)]
    # A space separates; in a name, which is that of a tag, it would begin another.
    named = ((name, dict.fromkeys(target[i] for i in ids)) for name, ids in rows if " " not in name)
    return "".join(f"{name}\t{' '.join(t for t in ids if ' ' not in t)}\n" for name, ids in named)


def read_ctranslate2(folder: Path) -> Checkpoint:
    """Read an export without its run; the model has no weights (torch's device ``meta``)."""
    size = (folder / WEIGHTS).stat().st_size
    return read_settings(folder / SETTINGS, lambda model: validate_size(model, size))


def _spec(config: ModelConfig) -> "TransformerSpec":
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    relu, gelu, swish = Activation.RELU, Activation.GELU, Activation.SWISH
    activations = {"relu": relu, "gelu": gelu, "geglu": gelu, "swish": swish, "swiglu": swish}
    activations |= dict.fromkeys(("gelu_tanh", "geglu_tanh"), Activation.GELUTanh)
    shared: dict[str, Any] = {
        "pre_norm": config.norm_order == "pre",
        "activation": activations[config.activation],
        "ffn_glu": config.activation in ("swiglu", "geglu", "geglu_tanh"),
        "rms_norm": config.norm == "rms",
        "relative_attention_bias": config.positions == "relative",
        "layernorm_embedding": config.embedding_norm,
    }
    heads = {"num_heads_kv": config.num_kv_heads, "head_dim": config.head_dim}
    shared |= {name: value for name, value in heads.items() if value is not None}
    if config.positions == "rotary":
        shared |= {"rotary_dim": config.d_k, "rotary_interleave": False}
    encoder = TransformerEncoderSpec(config.encoder_layers, config.num_heads, **shared)
    decoder = TransformerDecoderSpec(config.decoder_layers, config.num_heads, **shared)
    if config.positions == "rotary":
        # Otherwise the engine adds sinusoids.
        del encoder.position_encodings
    return TransformerSpec(encoder, decoder)


def _fill(spec: "TransformerSpec", model: Transformer) -> None:
    length = model.config.max_length
    if model.config.positions == "sinusoidal":
        # The engine fails beyond the exported positions.
        length = max(length, ENGINE_LENGTH)
    _fill_embedding(spec.encoder.embeddings[0], spec.encoder, model.source_embedding, length)
    _fill_embedding(spec.decoder.embeddings, spec.decoder, model.target_embedding, length)
    encoder = cast(Iterable[EncoderLayer], model.encoder.layers)
    for into, layer in zip(spec.encoder.layer, encoder, strict=True):
        _fill_attention(into.self_attention, layer.attention, layer.attention_residual.norm)
        _fill_feed_forward(into.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    decoder = cast(Iterable[DecoderLayer], model.decoder.layers)
    for into, block in zip(spec.decoder.layer, decoder, strict=True):
        _fill_attention(into.self_attention, block.self_attention, block.self_residual.norm)
        cross = block.cross_attention
        _fill_attention(into.attention, cross, block.cross_residual.norm, cross=True)
        _fill_feed_forward(into.ffn, block.feed_forward, block.feed_forward_residual.norm)
    if model.config.norm_order == "pre":
        _fill_norm(spec.encoder.layer_norm, model.encoder.final_norm)
        _fill_norm(spec.decoder.layer_norm, model.decoder.final_norm)
    spec.decoder.projection.weight = _array(model.projection.weight)
    if model.config.scale_output:
        spec.decoder.scale_outputs = model.config.output_scale
    for stack, own in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        bias = own.attention_context.bias
        if isinstance(bias, BucketBias):
            for layer in stack.layer:
                into = layer.self_attention
                into.relative_attention_bias = _array(bias.table)
                into.relative_attention_max_distance = np.int32(bias.max_distance)


def _fill_embedding(into: Any, stack: Any, embedding: Embedding, length: int) -> None:
    into.weight = _array(embedding.tokens.lookup.weight)
    into.multiply_by_sqrt_depth = embedding.tokens.scale != 1.0
    stack.scale_embeddings = embedding.tokens.scale != 1.0
    if not isinstance(embedding.norm, nn.Identity):
        _fill_norm(stack.layernorm_embedding, embedding.norm)
    if embedding.positions is not None:
        stack.position_encodings.encodings = _array(embedding.positions(length))


def _fill_attention(
    into: Any, attention: MultiHeadAttention, norm: nn.Module, *, cross: bool = False
) -> None:
    # CTranslate2 joins the projections of one input into one matrix.
    query, key, value = attention.query, attention.key, attention.value
    groups = [[query], [key, value]] if cross else [[query, key, value]]
    for linear, group in zip(into.linear, [*groups, [attention.output]], strict=True):
        _fill_linear(linear, group)
    if attention.head_mask is not None:
        # The engine cannot switch heads off: their output weights become zero.
        mask = attention.head_mask.repeat_interleave(attention.head_dim)
        into.linear[-1].weight = _array(attention.output.weight * mask)
    if attention.query_scale is not None:
        into.queries_scale = np.float32(1)
    _fill_norm(into.layer_norm, norm)


def _fill_feed_forward(into: Any, feed_forward: Any, norm: nn.Module) -> None:
    _fill_linear(into.linear_1, [feed_forward.outer])
    if isinstance(feed_forward, GatedFeedForward):
        _fill_linear(into.linear_0, [feed_forward.gate])
        _fill_linear(into.linear_0_noact, [feed_forward.inner])
    else:
        _fill_linear(into.linear_0, [feed_forward.inner])
    _fill_norm(into.layer_norm, norm)


def _fill_linear(into: Any, linears: Sequence[nn.Linear]) -> None:
    into.weight = _array(torch.cat([linear.weight for linear in linears]))
    if linears[0].bias is not None:
        into.bias = _array(torch.cat([linear.bias for linear in linears]))


def _fill_norm(into: Any, norm: nn.Module) -> None:
    into.gamma = _array(cast(torch.Tensor, norm.weight))
    if isinstance(norm, nn.LayerNorm):
        into.beta = _array(norm.bias)


def _array(tensor: torch.Tensor) -> Any:
    # A copy: quantizing a spec changes its arrays in place.
    return tensor.detach().float().cpu().contiguous().numpy().copy()
