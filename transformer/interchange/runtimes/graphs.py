"""A model as two graphs of ONNX: the encoder, and the decoder with its cache.

Names of files, inputs and outputs are those that transformers.js 4 reads. One decoder serves all
steps: it projects the part of the source that the cache does not have, at first all of it.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from transformer.data.tokenization.config import BOS, PAD
from transformer.decoding.translation.translator import Translator
from transformer.interchange.expressible import Values, check_expressible
from transformer.model.attention.attention_bias import AttentionBias, SelfAttentionBias
from transformer.model.attention.kv_cache import AllHeads, LayerCache, RowHeads
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.record_weights import recording
from transformer.model.decoder import DecoderLayer
from transformer.model.heads import HeadName
from transformer.model.layers.dropout import evaluating
from transformer.model.transformer import Transformer

ENCODER, DECODER = "encoder_model", "decoder_model_merged"
SUFFIXES = {"float32": "", "int8": "_quantized"}
"""Ends of the names of the files, by quantization."""

_HAS: Values = {
    "pattern": ("full",),
    "decoder_pattern": ("full", None),
    "convolution_window": (None,),
    **dict.fromkeys(("encoder_layer", "decoder_layer", "feed_forward"), (None,)),
}

_OPSET = 20


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
        bias = _bias(encoder.attention_bias, positions, positions, seen[:, None, None] != 0)
        hidden = self.model.source_embedding(tokens)
        for layer in encoder.layers:
            hidden = layer(hidden, bias)
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
        decoder, start, known = self.model.decoder, past[0].size(2), past[2].size(2)
        new = source.narrow(1, known, source.size(1) - known)
        keys = torch.arange(start + tokens.size(1))
        queries = torch.arange(start, start + tokens.size(1))
        causal = (keys <= queries[:, None])[None, None]
        bias = _bias(decoder.attention_bias, queries, keys, causal)
        source_bias = AttentionBias(seen[:, None, None] != 0)
        hidden = self.model.target_embedding(tokens, start)
        layers, presents = [cast(DecoderLayer, layer) for layer in decoder.layers], []
        with recording([layer.cross_attention for layer in layers]) as weights:
            for number, layer in enumerate(layers):
                cached, added = past[4 * number : 4 * number + 4], layer.start(new)
                cross_keys = torch.cat((cached[2], added.cross_keys), 2)
                cross_values = torch.cat((cached[3], added.cross_values), 2)
                cache = _Cache(cross_keys, cross_values, *cached[:2])
                hidden = layer(hidden, cache, bias, source_bias)
                presents += [cast(Tensor, cache.keys), cast(Tensor, cache.values)]
                presents += [cross_keys, cross_values]
        hidden = decoder.final_norm(hidden)
        if self.model.config.scale_output:
            hidden = hidden * self.model.config.output_scale
        return (self.model.logits(hidden) + self.never, _aligning(weights, self.head), *presents)


def _bias(own: SelfAttentionBias, queries: Tensor, keys: Tensor, mask: Tensor) -> AttentionBias:
    """The bias of self-attention, without Python's ``len``: a graph is for any length."""
    made = AttentionBias(mask, rotation=None if own.rotary is None else own.rotary(queries))
    if (bias := own.bias) is not None:
        heads, distances = torch.arange(bias.num_heads), keys - queries[:, None]
        made.once("dense_bias", lambda: bias(heads[:, None, None], distances[None])[None])
    return made


def _aligning(weights: Sequence[Tensor], head: HeadName | None) -> Tensor:
    """As ``aligning_attention``: batch target source."""
    if head is not None:
        return weights[head.layer][:, head.head]
    return torch.stack([layer.mean(1) for layer in weights[1:] or weights]).mean(0)


class _Graph(NamedTuple):
    """What ``torch.onnx.export`` needs; an axis that varies has a name."""

    module: nn.Module
    arguments: tuple[Any, ...]
    axes: tuple[Any, ...]
    inputs: list[str]
    outputs: list[str]


def write_graphs(translator: Translator, folder: Path, quantization: str) -> None:
    """Write ``encoder_model`` and ``decoder_model_merged`` into an existing folder.

    Raises InputError if the model has layers of its own, convolutions or sparse attention.
    """
    model = translator.model
    check_expressible(model.config, "ONNX", _HAS)
    never = (PAD, BOS, *translator.tokenizer.never_written)
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    graphs = {ENCODER: _encoder(model), DECODER: _decoder(model, translator.aligner.head, never)}
    for name, graph in graphs.items():
        file = folder / f"{name}.onnx"
        # The formula makes a plainer graph than the fused kernel.
        with evaluating(model), recording(attentions), torch.no_grad(), _quiet():
            _export(graph, file)
        if quantization == "int8":
            quantize(file, folder / f"{name}{SUFFIXES['int8']}.onnx")
            file.unlink()


def _encoder(model: Transformer) -> _Graph:
    # The exporter takes one tensor in two places for one input.
    tokens, seen = torch.full((2, 7), BOS), torch.ones(2, 7, dtype=torch.long)
    axes = {0: "batch_size", 1: "encoder_sequence_length"}
    names = ["input_ids", "attention_mask"]
    return _Graph(_Encoder(model), (tokens, seen), (axes, axes), names, ["last_hidden_state"])


def _decoder(model: Transformer, head: HeadName | None, never: Sequence[int]) -> _Graph:
    config = model.config
    heads = config.num_kv_heads or config.num_heads
    past = [
        torch.zeros(2, heads, length, config.d_k) for length in (5, 5, 4, 4) * config.decoder_layers
    ]
    lengths = ("past_decoder_sequence_length",) * 2 + ("past_encoder_sequence_length",) * 2
    cache = [{0: "batch_size", 2: length} for length in lengths] * config.decoder_layers
    source = {0: "batch_size", 1: "encoder_sequence_length"}
    names = [
        f"{layer}.{side}.{kind}"
        for layer in range(config.decoder_layers)
        for side in ("decoder", "encoder")
        for kind in ("key", "value")
    ]
    tokens, seen = torch.full((2, 3), BOS), torch.ones(2, 7, dtype=torch.long)
    return _Graph(
        _Decoder(model, head, never),
        (tokens, seen, torch.zeros(2, 7, config.d_model), past),
        ({0: "batch_size", 1: "decoder_sequence_length"}, source, source, cache),
        [
            *("input_ids", "encoder_attention_mask", "encoder_hidden_states"),
            *(f"past_key_values.{name}" for name in names),
        ],
        ["logits", "alignment", *(f"present.{name}" for name in names)],
    )


def _export(graph: _Graph, file: Path) -> None:
    program = torch.onnx.export(
        graph.module.eval(),
        graph.arguments,
        dynamo=True,
        dynamic_shapes=graph.axes,
        input_names=graph.inputs,
        output_names=graph.outputs,
        opset_version=_OPSET,
        verbose=False,
    )
    assert program is not None
    program.save(str(file))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells of packages that it does without, and of its own deprecations."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quantize(file: Path, into: Path) -> None:
    """Weights of products and embeddings in 8 bits, a scale a tensor; ``into`` is new.

    A tied projection stays the transposed embedding: onnxruntime transposes it when it loads.
    """
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
    with _quiet():
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
