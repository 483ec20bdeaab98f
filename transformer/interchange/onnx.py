"""A model for onnxruntime and transformers.js 4 (``modeling_utils.js``): two graphs of ONNX.

The graphs are the encoder, and the decoder with its cache. Names of files, inputs and outputs are
those that transformers.js reads. One decoder serves all steps: it projects the part of the source
that the cache does not have, at first all of it. The search is greedy.

In the ``tokenizer.json`` of Hugging Face's ``tokenizers`` and of transformers.js, a text that
spells a control symbol becomes that symbol, and U+2581 becomes a space; here both stay text. The
page of ``format=web`` reads the same file as we do.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from transformer.common.errors import InputError, raise_objections
from transformer.data.text.parallel import Referenced
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batched_search import max_source, max_subwords
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.subwords import parse_subwords
from transformer.interchange.files import read_mapping, write_json
from transformer.interchange.verification import ONNX, PLAIN, check_expressible, compare_texts
from transformer.model.attention.attention_context import AttentionContext, Dense, StackContext
from transformer.model.attention.kv_cache import AllHeads, LayerCache, RowHeads
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.record_weights import recording
from transformer.model.decoder import DecoderLayer
from transformer.model.head_masks import HeadName
from transformer.model.modes import evaluating
from transformer.model.transformer import Transformer
from transformer.settings.metrics import MetricsConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

ENCODER = "encoder_model"
DECODER = "decoder_model_merged"
"""Names of the files of the graphs."""

SUFFIXES = {"float32": "", "int8": "_quantized"}
"""Ends of the names of the files, by quantization."""

TARGET = "target"
"""Folder of the tokenizer of the target, if it is another than that of the source."""


def write_onnx(translator: Translator, folder: Path, quantization: str) -> None:
    """Write graphs, tokenizer and configs; raises InputError for what they cannot express."""
    if quantization not in SUFFIXES:
        known = " or ".join(SUFFIXES)
        raise InputError(f"quantization={quantization} is not for ONNX; choose {known}")
    tokenizers = tokenizer_files(translator.tokenizer)
    for number, content in enumerate(tokenizers):
        side = folder / TARGET if number else folder
        side.mkdir(exist_ok=True)
        write_json(content, side / "tokenizer.json")
        names = {token["id"]: token["content"] for token in content["added_tokens"]}
        settings = {
            "pad_token": names[PAD],
            "unk_token": names[UNK],
            "bos_token": names[BOS],
            "eos_token": names[EOS],
            "tokenizer_class": "PreTrainedTokenizer",
        }
        write_json(settings, side / "tokenizer_config.json")
    write_json(_config(translator), folder / "config.json")
    (folder / "onnx").mkdir()
    write_graphs(translator, folder / "onnx", quantization)


def _config(translator: Translator) -> dict[str, Any]:
    config = translator.model.config
    search = translator.search
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "d_model": config.d_model,
        "vocab_size": config.target_vocab_size,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_kv_heads or config.num_heads,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS if config.decoder_start is None else config.decoder_start,
        # With the start, which has a position too.
        "max_length": max_subwords(translator.model) + 1,
        # transformers.js does not know these; the page of format=web does.
        "max_source": max_source(translator.model),
        "max_length_ratio": search.max_length_ratio,
        "max_length_offset": search.max_length_offset,
        "alignment_threshold": translator.aligner.near_best,
        "head_dim": config.d_k,
    }


_NORMALIZERS = (
    {"type": "NFC"},
    {"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""},
    {"type": "Replace", "pattern": {"Regex": " +"}, "content": WORD_START},
    {"type": "Prepend", "prepend": WORD_START},
)
_DECODERS = (
    {"type": "Replace", "pattern": {"String": WORD_START}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
)


def tokenizer_files(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """``tokenizer.json`` of each vocabulary; raises InputError for tags, or other subwords."""
    learned = set(tokenizer.config.algorithms) <= {"bpe", "unigram"}
    state = tokenizer.to_state()
    models = []
    if learned:
        for side in ("source", "target"):
            if state[side] is not None:
                models.append(parse_subwords(bytes(state[side].numpy())))
    required = {
        "tokenizer=bpe or unigram": learned,
        "no tags of languages": tokenizer.tags == Tags(),
        "no tokenizer.add, sentinels or imported subwords": all(map(_is_plain, models)),
    }
    raise_objections(
        f"ONNX and its tokenizer.json need {name}; export format=ctranslate2 or safetensors"
        for name, holds in required.items()
        if not holds
    )
    return [_file(model) for model in models]


def _is_plain(model: Any) -> bool:
    kinds = model.SentencePiece
    plain = {kinds.NORMAL, kinds.BYTE, kinds.CONTROL, kinds.UNKNOWN}
    spec = model.normalizer_spec
    return {piece.type for piece in model.pieces} <= plain and not spec.precompiled_charsmap


def _file(model: Any) -> dict[str, Any]:
    kinds = model.SentencePiece
    spec = model.trainer_spec
    end = model.pieces[spec.eos_id].piece
    first_text = {"Sequence": {"id": "A", "type_id": 0}}
    second_text = {"Sequence": {"id": "B", "type_id": 0}}
    end_symbol = {"SpecialToken": {"id": end, "type_id": 0}}
    return {
        "version": "1.0",
        # transformers.js wants the keys without a value, too.
        "truncation": None,
        "padding": None,
        "pre_tokenizer": None,
        "added_tokens": [
            {
                "id": number,
                "content": piece.piece,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for number, piece in enumerate(model.pieces)
            if piece.type in (kinds.CONTROL, kinds.UNKNOWN)
        ],
        "normalizer": {"type": "Sequence", "normalizers": _NORMALIZERS},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first_text, end_symbol],
            "pair": [first_text, second_text, end_symbol],
            "special_tokens": {end: {"id": end, "ids": [spec.eos_id], "tokens": [end]}},
        },
        "decoder": {"type": "Sequence", "decoders": _DECODERS},
        "model": _bpe(model) if spec.model_type == spec.BPE else _unigram(model),
    }


def _unigram(model: Any) -> dict[str, Any]:
    vocabulary = [[piece.piece, piece.score] for piece in model.pieces]
    unknown = model.trainer_spec.unk_id
    return {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": True}


def _bpe(model: Any) -> dict[str, Any]:
    """All pairs of pieces that make a piece, in the order of its score."""
    ids = {piece.piece: number for number, piece in enumerate(model.pieces)}
    normal = [piece for piece in model.pieces if piece.type == model.SentencePiece.NORMAL]
    names = [piece.piece for piece in sorted(normal, key=lambda piece: -piece.score)]
    merges = [
        [name[:cut], name[cut:]]
        for name in names
        for cut in range(1, len(name))
        if name[:cut] in ids and name[cut:] in ids
    ]
    return {
        "type": "BPE",
        "vocab": ids,
        "merges": merges,
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": True,
    }


def write_graphs(translator: Translator, folder: Path, quantization: str) -> None:
    """Write both graphs into an existing folder; raises InputError if ONNX has no such model."""
    model = translator.model
    check_expressible(model.config, "ONNX", ONNX)
    never = (PAD, BOS, *translator.tokenizer.never_written)
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
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
    heads = config.num_kv_heads or config.num_heads
    example_lengths = {"decoder": 5, "encoder": 4}
    source = {0: "batch_size", 1: "encoder_sequence_length"}
    target = {0: "batch_size", 1: "decoder_sequence_length"}
    names = []
    past = []
    cache = []
    for layer in range(config.decoder_layers):
        for side, length in example_lengths.items():
            for kind in ("key", "value"):
                names.append(f"{layer}.{side}.{kind}")
                past.append({0: "batch_size", 2: f"past_{side}_sequence_length"})
                cache.append(torch.zeros(2, heads, length, config.d_k))
    tokens = torch.full((2, 3), BOS)
    seen = torch.ones(2, 7, dtype=torch.long)
    inputs = ["input_ids", "encoder_attention_mask", "encoder_hidden_states"]
    return {
        "model": _Decoder(model, head, never).eval(),
        "args": (tokens, seen, torch.zeros(2, 7, config.d_model), cache),
        "dynamic_shapes": (target, source, source, past),
        "input_names": [*inputs, *(f"past_key_values.{name}" for name in names)],
        "output_names": ["logits", "alignment", *(f"present.{name}" for name in names)],
    }


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
        self.model = model
        self.head = head
        # Our searches never choose these tokens.
        bias = torch.zeros(model.config.target_vocab_size).index_fill(0, torch.tensor(never), -1e4)
        self.register_buffer("never", bias)

    def forward(
        self, tokens: Tensor, seen: Tensor, source: Tensor, past: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Shapes as in ``_decoder``; ``past`` has four tensors for each layer."""
        decoder = self.model.decoder
        start = past[0].size(2)
        known = past[2].size(2)
        new = source.narrow(1, known, source.size(1) - known)
        key_positions = torch.arange(start + tokens.size(1))
        query_positions = torch.arange(start, start + tokens.size(1))
        causal = (key_positions <= query_positions[:, None])[None, None]
        context = _context(decoder.attention_context, query_positions, key_positions, causal)
        source_context = AttentionContext(seen[:, None, None] != 0)
        hidden = self.model.target_embedding(tokens, start)
        layers = [cast(DecoderLayer, layer) for layer in decoder.layers]
        presents: list[Tensor] = []
        with recording([layer.cross_attention for layer in layers]) as weights:
            for number, layer in enumerate(layers):
                keys, values, cross_keys, cross_values = past[4 * number : 4 * number + 4]
                added = layer.start(new)
                cross_keys = torch.cat((cross_keys, added.cross_keys), 2)
                cross_values = torch.cat((cross_values, added.cross_values), 2)
                cache = _Cache(cross_keys, cross_values, keys, values)
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
        heads = torch.arange(stack.bias.num_heads)
        distances = keys - queries[:, None]
        bias = stack.bias(heads[:, None, None], distances[None])[None]
        dense = Dense(mask, bias)
    return AttentionContext(mask, rotation=rotation, dense=dense)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the warnings of the exporter: missing optional packages, its own deprecations."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def quantize(file: Path, into: Path) -> None:
    """Replace a file by one in 8 bits, a scale for each tensor; a tied projection stays tied."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(file)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    tied = [
        node
        for node in model.graph.node
        if node.op_type == "Transpose" and node.input[0] in constants
    ]
    for node in tied:
        # Only products with constants are quantized.
        transposed = onnx.numpy_helper.to_array(constants[node.input[0]]).T.copy()
        model.graph.initializer.append(onnx.numpy_helper.from_array(transposed, node.output[0]))
        model.graph.node.remove(node)
    quantize_dynamic(model, into, weight_type=QuantType.QUInt8)
    model = onnx.load(into)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in tied:
        names = [f"{name}_quantized" for name in (node.input[0], node.output[0])]
        if constants.keys() >= set(names):
            transpose = onnx.helper.make_node("Transpose", names[:1], names[1:], perm=[1, 0])
            model.graph.node.insert(0, transpose)
            model.graph.initializer.remove(constants[names[1]])
    onnx.save(model, into)
    file.unlink()


class OnnxGreedy:
    """Greedy search with the files of a folder alone, one sentence at a time."""

    def __init__(self, folder: Path) -> None:
        import tokenizers
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.log_severity_level = 3
        graphs = folder / "onnx"
        self.encoder = InferenceSession(next(graphs.glob(f"{ENCODER}*.onnx")), options)
        self.decoder = InferenceSession(next(graphs.glob(f"{DECODER}*.onnx")), options)
        source_file = folder / "tokenizer.json"
        target_file = folder / TARGET / "tokenizer.json"
        if not target_file.is_file():
            target_file = source_file
        self.source = tokenizers.Tokenizer.from_file(str(source_file))
        self.target = tokenizers.Tokenizer.from_file(str(target_file))
        self.settings = read_mapping(folder / "config.json")
        self.cache = self.decoder.get_inputs()[3:]

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Translate texts; a blank text has a blank translation."""
        return [str(self.target.decode(self.tokens(text))).replace("\n", " ") for text in texts]

    def tokens(self, text: str) -> list[int]:
        """The ids of a translation, without its end."""
        ids = self.source.encode(text).ids if text.strip() else []
        if not ids:
            return []
        values = self.settings
        limit = int(values["max_length_ratio"] * (len(ids) - 1) + values["max_length_offset"])
        limit = min(max(1, limit), values["max_length"] - 1)
        source = np.array([ids])
        seen = np.ones_like(source)
        [memory] = self.encoder.run(None, {"input_ids": source, "attention_mask": seen})
        fixed = {"encoder_attention_mask": seen, "encoder_hidden_states": memory}
        cache = [
            np.zeros((1, tensor.shape[1], 0, tensor.shape[3]), np.float32) for tensor in self.cache
        ]
        tokens: list[int] = []
        token = values["decoder_start_token_id"]
        while len(tokens) < limit:
            past = {tensor.name: value for tensor, value in zip(self.cache, cache, strict=True)}
            inputs = {"input_ids": np.array([[token]]), **fixed, **past}
            logits, _, *cache = self.decoder.run(None, inputs)
            token = int(logits[0, -1].argmax())
            if token == EOS:
                break
            tokens.append(token)
        return tokens


def verify_onnx(
    translator: Translator, folder: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare a model with its export in onnxruntime, both greedy (``compare_texts``)."""
    return compare_texts(translator, PLAIN, OnnxGreedy(folder), pairs, metrics)
