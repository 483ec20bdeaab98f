"""A model for CTranslate2 (Klein et al. 2020, section 6): its export, and an engine that runs it.

The engine searches with our beam size and ``stopping=full``; our length penalty ranks its
hypotheses. Its probabilities exclude the padding and beginning symbols.
"""

import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from transformer.checkpoint.checkpoint import Checkpoint, validate_size
from transformer.checkpoint.exported import read_settings
from transformer.checkpoint.run_directory import ENGINE_WEIGHTS as WEIGHTS
from transformer.common.errors import InputError, raise_objections, readable
from transformer.common.files import given_path
from transformer.data.text.parallel import Referenced
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batched_search import max_subwords
from transformer.decoding.fingerprint import check_fingerprint
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.search import Hypothesis
from transformer.decoding.search.shortlist import ENGINE_FILE, Shortlist
from transformer.decoding.translator import Searcher, Translator, torch_engine
from transformer.interchange.verification import (
    CTRANSLATE2,
    PLAIN,
    agreement,
    check_expressible,
    check_formula,
    compare_scores,
    uncut_pairs,
)
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.embedding import Embedding
from transformer.model.layers.feedforward import GatedFeedForward
from transformer.model.layers.norm import HeadNorm
from transformer.model.positions.t5_buckets import BucketBias
from transformer.model.transformer import Transformer
from transformer.settings.decoding import SearchConfig
from transformer.settings.metrics import MetricsConfig
from transformer.settings.model import ModelConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

log = logging.getLogger(__name__)

SETTINGS = "transformer.json"
"""Settings for a translation without the run; the engine does not read them."""

ENGINE_LENGTH = 1024
"""Default limit of the engine for the subwords of a source."""

SEARCHABLE: dict[str, tuple[Any, ...]] = {
    "algorithm": ("beam", "greedy"),
    "coverage_penalty": (0,),
    "eos_threshold": (0,),
    # The engine renormalizes over the remaining tokens; our search does not.
    "min_length": (0,),
    "no_repeat_ngram": (0,),
}
"""The values of these settings that CTranslate2 can do; it can do all values of the others."""


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
    spec.config.bos_token = target[BOS]
    spec.config.decoder_start_token = target[BOS]
    spec.config.eos_token = target[EOS]
    spec.config.unk_token = target[UNK]
    spec.config.add_source_eos = True
    encoder_layers = cast(Sequence[EncoderLayer], model.encoder.layers)
    # Not of a HeadNorm, whose epsilon is another (_fill_attention).
    spec.config.layer_norm_epsilon = encoder_layers[0].attention_residual.norm.eps
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))


def vocabulary_map(file: Path, tokenizer: Tokenizer) -> str:
    """A shortlist as the ``vmap.txt`` of CTranslate2.

    A line has a source token, a tab and its candidates. The line of the empty token has the
    candidates of all sources.
    """
    shortlist = Shortlist.load(file, tokenizer)
    source = tokenizer.source_subwords(range(tokenizer.source_vocab_size))
    target = tokenizer.subwords(range(tokenizer.target_vocab_size))
    rows = [("", shortlist.common), *zip(source, shortlist.candidates, strict=True)]
    lines = []
    for name, ids in rows:
        # A space separates candidates, so the names of tags, which have spaces, are left out.
        if " " not in name:
            candidates = dict.fromkeys(target[i] for i in ids if " " not in target[i])
            lines.append(f"{name}\t{' '.join(candidates)}\n")
    return "".join(lines)


def read_ctranslate2(folder: Path) -> Checkpoint:
    """Read an export without its run; the model has no weights (torch's device ``meta``)."""
    size = (folder / WEIGHTS).stat().st_size
    return read_settings(folder / SETTINGS, lambda model: validate_size(model, size))


def _spec(config: ModelConfig) -> "TransformerSpec":
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    activations = {
        "relu": Activation.RELU,
        "gelu": Activation.GELU,
        "geglu": Activation.GELU,
        "gelu_tanh": Activation.GELUTanh,
        "geglu_tanh": Activation.GELUTanh,
        "swish": Activation.SWISH,
        "swiglu": Activation.SWISH,
    }
    shared: dict[str, Any] = {
        "pre_norm": config.norm_order == "pre",
        "activation": activations[config.activation],
        "ffn_glu": config.activation in ("swiglu", "geglu", "geglu_tanh"),
        "rms_norm": config.norm == "rms",
        "relative_attention_bias": config.positions == "relative",
        "layernorm_embedding": config.embedding_norm,
        "qk_norm": config.query_key_norm == "self",
    }
    if config.num_kv_heads is not None:
        shared["num_heads_kv"] = config.num_kv_heads
    if config.head_dim is not None:
        shared["head_dim"] = config.head_dim
    if config.positions == "rotary":
        shared |= {"rotary_dim": config.d_k, "rotary_interleave": False}
    encoder = TransformerEncoderSpec(config.encoder_layers, config.num_heads, **shared)
    decoder = TransformerDecoderSpec(config.decoder_layers, config.num_heads, **shared)
    if config.query_key_norm == "self":
        for layer in decoder.layer:
            del layer.attention.q_norm
            del layer.attention.k_norm
    if config.positions == "rotary":
        # Otherwise the engine adds sinusoids.
        del encoder.position_encodings
    return TransformerSpec(encoder, decoder)


def _fill(spec: "TransformerSpec", model: Transformer) -> None:
    config = model.config
    # The engine fails beyond the exported positions.
    least = ENGINE_LENGTH if config.positions == "sinusoidal" else 0
    source, target = (max(n, least) for n in (config.source_positions, config.max_length))
    assert isinstance(model.source_embedding, Embedding)  # others are refused before
    _fill_embedding(spec.encoder.embeddings[0], spec.encoder, model.source_embedding, source)
    _fill_embedding(spec.decoder.embeddings, spec.decoder, model.target_embedding, target)
    encoder_layers = cast(Iterable[EncoderLayer], model.encoder.layers)
    for into, layer in zip(spec.encoder.layer, encoder_layers, strict=True):
        _fill_attention(into.self_attention, layer.attention, layer.attention_residual.norm)
        _fill_feed_forward(into.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    decoder_layers = cast(Iterable[DecoderLayer], model.decoder.layers)
    for into, block in zip(spec.decoder.layer, decoder_layers, strict=True):
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
    for into_stack, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        bias = stack.attention_context.bias
        if isinstance(bias, BucketBias):
            for into_layer in into_stack.layer:
                into = into_layer.self_attention
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
    if cross:
        groups = [[attention.query], [attention.key, attention.value], [attention.output]]
    else:
        groups = [[attention.query, attention.key, attention.value], [attention.output]]
    for into_linear, group in zip(into.linear, groups, strict=True):
        _fill_linear(into_linear, group)
    if attention.head_mask is not None:
        # The engine cannot switch heads off: their output weights become zero.
        mask = attention.head_mask.repeat_interleave(attention.head_dim)
        into.linear[-1].weight = _array(attention.output.weight * mask)
    if attention.query_scale is not None:
        into.queries_scale = np.float32(1)
    if isinstance(attention.query_norm, HeadNorm):
        _fill_norm(into.q_norm, attention.query_norm)
        _fill_norm(into.k_norm, attention.key_norm)
        # The engine has one epsilon for all norms. A norm of scaled heads with an epsilon scaled by
        # the square is the same; only self-attention, where the three are one matrix, has HeadNorm.
        scale = math.sqrt(cast(float, norm.eps) / cast(float, attention.query_norm.eps))
        rows = attention.query.out_features + attention.key.out_features
        into.linear[0].weight[:rows] *= scale
        if attention.query.bias is not None:
            into.linear[0].bias[:rows] *= scale
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


def check_search(search: SearchConfig, tokenizer: Tokenizer) -> None:
    """Raise InputError for settings that CTranslate2 does not have."""
    if search.shortlist and tokenizer.tags.sentences:
        raise InputError(
            "decoding.shortlist: the vmap.txt of CTranslate2 cannot name the separator of a "
            "document; set decoding.shortlist=null, or use engine=torch"
        )
    raise_objections(
        f"decoding.{name}={getattr(search, name)} cannot be done alike by engine=ctranslate2; set "
        f"decoding.{name}={values[0]}, or use engine=torch"
        for name, values in SEARCHABLE.items()
        if getattr(search, name) not in values
    )


class EngineBeams:
    """The hypotheses of the engine for source subwords, ranked by our length penalty."""

    def __init__(self, translator: Translator, folder: Path, device: torch.device) -> None:
        import ctranslate2

        self.tokenizer = translator.tokenizer
        self.search = translator.search
        self.batch_tokens = translator.batch_tokens
        self.max_subwords = max_subwords(translator.model)
        subwords = self.tokenizer.subwords(range(self.tokenizer.target_vocab_size))
        self.ids = {subword: number for number, subword in enumerate(subwords)}
        with readable(folder):
            self.engine = ctranslate2.Translator(
                str(folder),
                intra_threads=torch.get_num_threads(),
                device=device.type,
                device_index=device.index or 0,
            )

    def limit(self, segment: Sequence[int]) -> int:
        """Maximum length of the translation; the engine has one limit for all segments."""
        return min(self.max_subwords, self.search.limit(len(segment)))

    def __call__(self, segments: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Search them all; hypotheses may be longer than the limit of their segment."""
        width = self.search.beam_size
        # Without a penalty the engine would stop a beam search earlier than ours. In greedy search
        # it divides only some scores by the penalty.
        power = (self.search.length_penalty or 1e-6) if width > 1 else 0.0
        results = self.engine.translate_batch(
            [self.tokenizer.source_subwords(segment) for segment in segments],
            beam_size=width,
            num_hypotheses=width,
            length_penalty=power,
            min_decoding_length=0,
            # The end symbol counts as one more.
            max_decoding_length=max(map(self.limit, segments), default=0) + 1,
            max_input_length=0,
            max_batch_size=max(1, self.batch_tokens // width),
            batch_type="tokens",
            return_scores=True,
            use_vmap=self.search.shortlist is not None,
        )
        return [self._ranked(result.hypotheses, result.scores, power) for result in results]

    def _ranked(
        self, hypotheses: list[list[str]], scores: list[float], power: float
    ) -> list[Hypothesis]:
        ranked = []
        for subwords, score in zip(hypotheses, scores, strict=True):
            length = len(subwords) + 1
            total = score * length**power
            tokens = tuple(self.ids[subword] for subword in subwords)
            ranked.append(Hypothesis(tokens, total / self.search.penalty(length), total))
        return sorted(ranked, key=lambda hypothesis: -hypothesis.score)


@dataclass(frozen=True)
class CTranslate2Engine:
    """CTranslate2 with an export of the model; without a device, on that of the model."""

    folder: Path
    device: torch.device | None = None

    def __call__(self, translator: Translator) -> Searcher:
        """Load the export; raises InputError for another model or a search that it cannot do."""
        return CTranslate2Searcher(translator, self.folder, self.device or translator.device)


class CTranslate2Searcher:
    """Searches with the engine, and with our search for constraints and too long hypotheses.

    An export alone (``read_ctranslate2``) has no model for our search: it cuts hypotheses at their
    limit, and refuses constraints.
    """

    def __init__(self, translator: Translator, folder: Path, device: torch.device) -> None:
        check_search(translator.search, translator.tokenizer)
        shortlist = translator.search.shortlist
        if shortlist:
            file = folder / ENGINE_FILE
            exported = file.read_text(encoding="utf-8") if file.is_file() else ""
            # An export without its run has no other.
            expected = exported
            if shortlist != "auto":
                expected = vocabulary_map(given_path(shortlist), translator.tokenizer)
            if not exported or exported != expected:
                raise InputError(
                    f"{file} is missing, or of another shortlist; export again with "
                    "RUN/shortlist.npz, or set decoding.shortlist=null"
                )
        if translator.search.stopping == "exact" and translator.search.beam_size > 1:
            log.warning("engine=ctranslate2 stops with a full beam, as decoding.stopping=full does")
        self.has_model = translator.device.type != "meta"
        if self.has_model:
            check_fingerprint(translator.model, translator.tokenizer, folder)
        self.torch_search = torch_engine(translator)
        self.nbest = translator.search.nbest
        self.beams = EngineBeams(translator, folder, device)

    def __call__(self, segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        """Search them all; raises InputError for constraints where there is only the export."""
        limits = [self.beams.limit(segment.subwords) for segment in segments]
        beams = self.beams([segment.subwords for segment in segments])
        if not self.has_model:
            if any(segment.constraints for segment in segments):
                raise InputError(
                    "an export alone has no prefix, must, never, terms or glossary; give its run, "
                    "exported without output="
                )
            beams = [
                [replace(hypothesis, tokens=hypothesis.tokens[:limit]) for hypothesis in beam]
                for beam, limit in zip(beams, limits, strict=True)
            ]
        # The engine has one limit for all segments, and no constraints.
        again = [
            index
            for index, beam in enumerate(beams)
            if segments[index].constraints or any(len(h.tokens) > limits[index] for h in beam)
        ]
        searched_again = self.torch_search([segments[index] for index in again])
        for index, beam in zip(again, searched_again, strict=True):
            beams[index] = beam
        return [beam[: self.nbest] for beam in beams]


def verify_ctranslate2(
    translator: Translator, folder: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare greedy translations of a model and its export: equal tokens, scores and times."""
    tokenizer = translator.tokenizer
    pairs = uncut_pairs(pairs, translator)
    sources = [source for source, _ in pairs]
    search = replace(translator.search, **PLAIN)
    original = Translator(translator.model, tokenizer, search, translator.batch_tokens)
    engine = EngineBeams(original, folder, torch.device("cpu"))
    start = time.perf_counter()
    translations = original.translate(sources)
    middle = time.perf_counter()
    segments = tokenizer.encode_source(sources)
    beams = engine(segments)
    # The engine has one limit for all segments.
    exported = [
        beam[0].tokens[: engine.limit(segment)]
        for segment, beam in zip(segments, beams, strict=True)
    ]
    end = time.perf_counter()
    tokens = [translation.tokens for translation in translations]
    texts = [translation.text for translation in translations]
    return {
        "split": "validation",
        "sentences": len(sources),
        "search": "greedy (beam size 1)",
        "agreement": round(agreement(tokens, list(map(tokenizer.subwords, exported))), 4),
        **compare_scores(texts, tokenizer.decode_target(exported), pairs, metrics),
        "speed_up": round((middle - start) / (end - middle), 2),
        # The type of the quantization, or another that this machine supports.
        "computed_in": engine.engine.compute_type,
    }
