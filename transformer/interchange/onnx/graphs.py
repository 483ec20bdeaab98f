"""A model as two graphs of ONNX: the encoder, and the decoder with its cache.

Names of files, inputs and outputs are those that transformers.js 4 reads. One decoder serves all
steps: it projects the part of the source that the cache does not have, at first all of it.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from transformer.decoding.translator import Translator
from transformer.interchange.format_limits import ONNX, check_expressible
from transformer.model.attention.attention_context import AttentionContext, Dense, StackContext
from transformer.model.attention.kv_cache import AllHeads, LayerCache, RowHeads
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.record_weights import recording
from transformer.model.decoder import DecoderLayer
from transformer.model.head_masks import HeadName
from transformer.model.layers.dropout import evaluating
from transformer.model.transformer import Transformer
from transformer.settings.tokenizer import BOS, PAD

ENCODER, DECODER = "encoder_model", "decoder_model_merged"
SUFFIXES = {"float32": "", "int8": "_quantized"}
"""Ends of the names of the files, by quantization."""


class _Cache(LayerCache):
    """Grows by concatenation: a graph has no memory to write into."""

    def append(self, keys: RowHeads, values: RowHeads) -> tuple[AllHeads, AllHeads]:
        assert self.keys is not None and self.values is not None
        self.keys = torch.cat((self.keys, keys), 2)
        self.values = torch.cat((self.values, values), 2)
        return self.keys, self.values


class _Encoder(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        encoder = self.model.encoder
        positions = torch.arange(tokens.size(1))
        context = _context(
            encoder.attention_context, positions, positions, seen[:, None, None] != 0
        )
        hidden = self.model.source_embedding(tokens)
        for layer in encoder.layers:
            hidden = layer(hidden, context)
        return cast(Tensor, encoder.final_norm(hidden))


class _Decoder(nn.Module):
    """The logits, the attention to the source that links words, and the cache."""

    never: Tensor

    def __init__(self, model: Transformer, head: HeadName | None, never: Sequence[int]) -> None:
        super().__init__()
        self.model, self.head = model, head
        # Our searches never choose these tokens.
        bias = torch.zeros(model.config.target_vocab_size).index_fill(0, torch.tensor(never), -1e4)
        self.register_buffer("never", bias)

    def forward(
        self, tokens: Tensor, seen: Tensor, source: Tensor, past: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Shapes: ``_decoder``; ``past`` has four tensors a layer."""
        decoder, start, known = self.model.decoder, past[0].size(2), past[2].size(2)
        new = source.narrow(1, known, source.size(1) - known)
        keys = torch.arange(start + tokens.size(1))
        queries = torch.arange(start, start + tokens.size(1))
        causal = (keys <= queries[:, None])[None, None]
        context = _context(decoder.attention_context, queries, keys, causal)
        source_context = AttentionContext(seen[:, None, None] != 0)
        hidden = self.model.target_embedding(tokens, start)
        layers, presents = [cast(DecoderLayer, layer) for layer in decoder.layers], []
        with recording([layer.cross_attention for layer in layers]) as weights:
            for number, layer in enumerate(layers):
                cached, added = past[4 * number : 4 * number + 4], layer.start(new)
                cross_keys = torch.cat((cached[2], added.cross_keys), 2)
                cross_values = torch.cat((cached[3], added.cross_values), 2)
                cache = _Cache(cross_keys, cross_values, cached[0], cached[1])
                hidden = layer(hidden, cache, context, source_context)
                presents += [cast(Tensor, cache.keys), cast(Tensor, cache.values)]
                presents += [cross_keys, cross_values]
        hidden = decoder.final_norm(hidden)
        if self.model.config.scale_output:
            hidden = hidden * self.model.config.output_scale
        # As aligning_attention: batch target source.
        mean = torch.stack([layer.mean(1) for layer in weights[1:] or weights]).mean(0)
        links = mean if self.head is None else weights[self.head.layer][:, self.head.head]
        return (self.model.logits(hidden) + self.never, links, *presents)


def _context(stack: StackContext, queries: Tensor, keys: Tensor, mask: Tensor) -> AttentionContext:
    """The context of self-attention, without Python's ``len``: a graph is for any length."""
    rotation = None if stack.rotary is None else stack.rotary(queries)
    dense = None
    if stack.bias is not None:
        heads, distances = torch.arange(stack.bias.num_heads), keys - queries[:, None]
        bias = stack.bias(heads[:, None, None], distances[None])[None]
        dense = Dense(mask, bias)
    return AttentionContext(mask, rotation=rotation, dense=dense)


def write_graphs(translator: Translator, folder: Path, quantization: str) -> None:
    """Write both graphs into an existing folder; raises InputError if ONNX has no such model."""
    model = translator.model
    check_expressible(model.config, "ONNX", ONNX)
    never = (PAD, BOS, *translator.tokenizer.never_written)
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    # The formula makes a plainer graph than the fused kernel.
    with evaluating(model), recording(attentions), torch.no_grad(), _quiet():
        decoder = _decoder(model, translator.aligner.head, never)
        for name, graph in ((ENCODER, _encoder(model)), (DECODER, decoder)):
            exported: Any = torch.onnx.export(**graph, dynamo=True, opset_version=20, verbose=False)
            exported.save(folder / f"{name}.onnx")
            if quantization == "int8":
                quantize(folder / f"{name}.onnx", folder / f"{name}{SUFFIXES['int8']}.onnx")


def _encoder(model: Transformer) -> dict[str, Any]:
    """Arguments of ``torch.onnx.export``; an axis that varies has a name."""
    axes = {0: "batch_size", 1: "encoder_sequence_length"}
    return {
        "model": _Encoder(model).eval(),
        # The exporter takes one tensor in two places for one input.
        "args": (torch.full((2, 7), BOS), torch.ones(2, 7, dtype=torch.long)),
        "dynamic_shapes": (axes, axes),
        "input_names": ["input_ids", "attention_mask"],
        "output_names": ["last_hidden_state"],
    }


def _decoder(model: Transformer, head: HeadName | None, never: Sequence[int]) -> dict[str, Any]:
    config = model.config
    kinds = [
        (layer, side) for layer in range(config.decoder_layers) for side in ("decoder", "encoder")
    ]
    names = [f"{layer}.{side}.{kind}" for layer, side in kinds for kind in ("key", "value")]
    heads, lengths = config.num_kv_heads or config.num_heads, {"decoder": 5, "encoder": 4}
    source = {0: "batch_size", 1: "encoder_sequence_length"}
    target = {0: "batch_size", 1: "decoder_sequence_length"}
    past = [{0: "batch_size", 2: f"past_{side}_sequence_length"} for _, side in kinds for _ in "kv"]
    tokens, seen = torch.full((2, 3), BOS), torch.ones(2, 7, dtype=torch.long)
    cache = [torch.zeros(2, heads, lengths[s], config.d_k) for _, s in kinds for _ in "kv"]
    inputs = ["input_ids", "encoder_attention_mask", "encoder_hidden_states"]
    return {
        "model": _Decoder(model, head, never).eval(),
        "args": (tokens, seen, torch.zeros(2, 7, config.d_model), cache),
        "dynamic_shapes": (target, source, source, past),
        "input_names": [*inputs, *(f"past_key_values.{name}" for name in names)],
        "output_names": ["logits", "alignment", *(f"present.{name}" for name in names)],
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells of packages that it does without, and of its own deprecations."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quantize(file: Path, into: Path) -> None:
    """Replace a file by one in 8 bits, a scale a tensor; a tied projection stays transposed."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(file)
    constants = {one.name: one for one in model.graph.initializer}
    tied = [n for n in model.graph.node if n.op_type == "Transpose" and n.input[0] in constants]
    for node in tied:
        # Only products with constants are quantized.
        transposed = onnx.numpy_helper.to_array(constants[node.input[0]]).T.copy()
        model.graph.initializer.append(onnx.numpy_helper.from_array(transposed, node.output[0]))
        model.graph.node.remove(node)
    quantize_dynamic(model, into, weight_type=QuantType.QUInt8)
    model = onnx.load(into)
    constants = {one.name: one for one in model.graph.initializer}
    for node in tied:
        names = [f"{name}_quantized" for name in (node.input[0], node.output[0])]
        if constants.keys() >= {*names}:
            again = onnx.helper.make_node("Transpose", names[:1], names[1:], perm=[1, 0])
            model.graph.node.insert(0, again)
            model.graph.initializer.remove(constants[names[1]])
    onnx.save(model, into)
    file.unlink()
