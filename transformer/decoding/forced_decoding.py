"""Forced decoding: log-probabilities and attention of given translations."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import compress

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.data.batching.batch import Batch, Row, Source, collate, is_token
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batched_search import in_halves
from transformer.decoding.batching import (
    bucket_batches,
    check_lengths,
    overlong,
    pair_lengths,
)
from transformer.decoding.search.model_step import Ensemble, Model, ensemble_members
from transformer.decoding.search.search import not_a_number
from transformer.model.attention.masks import Mask
from transformer.model.attention.record_weights import recording
from transformer.model.encoder import Memory
from transformer.model.head_masks import Kind, attentions
from transformer.model.modes import evaluating
from transformer.model.transformer import Transformer
from transformer.settings.tokenizer import EOS, PAD


@dataclass(frozen=True)
class TargetScore:
    """The log-probability of one translation (natural logarithm)."""

    log_probability: float
    """Of all subwords and the end of the sentence."""
    tokens: tuple[str, ...]
    """The subwords, and the end."""
    token_log_probabilities: tuple[float, ...]
    """Of each token, given the tokens before it."""
    given: int = 0
    """The number of tags that the tokens begin with, which add nothing to the score."""

    @property
    def mean_log_probability(self) -> float:
        """The mean over the subwords and the end, without the given tags."""
        return self.log_probability / (len(self.tokens) - self.given)


def score_pairs(
    model: Model,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    *,
    batch_tokens: int = 4096,
    first: int | None = 1,
) -> list[TargetScore]:
    """Score the targets of sentence pairs, raw (source, target) text, in their order.

    A batch has ``batch_tokens`` padded tokens on the longer side; ``first`` is the number of the
    first pair, for errors. Raises InputError if a text is longer than the learned positions;
    with ``first`` None, the log-probability of its pair is ``-inf``.
    """
    encoded = tokenizer.encode_pairs(pairs)
    limits = model.max_lengths
    if first is not None:
        check_lengths(encoded, limits, "score", first=first)
    fits = [overlong(pair, limits) is None for pair in encoded]
    fitting = iter(score_subwords(model, list(compress(encoded, fits)), batch_tokens))
    scores = [next(fitting) if fit else [-math.inf] for fit in fits]
    scored = []
    for (_, target), row in zip(encoded, scores, strict=True):
        # As in the search, the tags of a target add nothing to the score; a blank target has none.
        given = tokenizer.tags.given if len(row) > 1 else 0
        values = [0.0] * given + row[given:]
        tokens = (*tokenizer.subwords(target), "</s>")
        scored.append(TargetScore(math.fsum(values), tokens, tuple(values), given))
    return scored


def score_subwords(
    model: Model, pairs: Sequence[tuple[Row, Row]], batch_tokens: int = 4096
) -> list[list[float]]:
    """Log-probabilities of the target subwords of each pair and of its end; see ``score_pairs``.

    A batch for which memory is too small is scored in halves.
    """
    scores: list[list[float]] = [[]] * len(pairs)
    device = next(model.parameters()).device

    def score(indices: list[int]) -> list[list[float]]:
        sources, targets = zip(*(pairs[index] for index in indices), strict=True)
        batch = collate(sources, targets).to(device)
        real = batch.target_output != model.config.pad
        members = [
            _log_probabilities(member, member.encode(batch.source), batch.target_input, real)
            for member in ensemble_members(model)
        ]
        combined = model.combine(members) if isinstance(model, Ensemble) else members[0]
        selected = _select(combined, batch.target_output, real)
        if selected.isnan().any():
            raise not_a_number(batch.target_input.size(1))
        rows = zip(selected.tolist(), targets, strict=True)
        return [row[: len(target) + 1] for row, target in rows]

    def describe(index: int) -> str:
        return f"one pair of {pair_lengths([pairs[index]])[0]} tokens; cut it in two"

    with evaluating(model):
        for indices in bucket_batches(pair_lengths(pairs), batch_tokens):
            rows = in_halves(score, indices, describe, free_memory=None)
            for index, row in zip(indices, rows, strict=True):
                scores[index] = row
    return scores


@torch.inference_mode()
def score_targets(
    model: Transformer,
    memory: Memory,
    target_input: Int[Tensor, "batch target"],
    target_output: Int[Tensor, "batch target"],
) -> Float[Tensor, "batch target"]:
    """The log-probability of each token of a `Batch` given the earlier tokens; 0 at padding."""
    real = target_output != model.config.pad
    return _select(_log_probabilities(model, memory, target_input, real), target_output, real)


def _log_probabilities(
    model: Transformer,
    memory: Memory,
    target_input: Int[Tensor, "batch target"],
    real: Bool[Tensor, "batch target"],
) -> Float[Tensor, "tokens vocab"]:
    """Of the token after each ``real`` position, in float32; padding is not projected."""
    hidden = model.decode(target_input, model.start(memory))
    return model.logits(hidden[real]).float().log_softmax(-1)


def _select(
    log_probabilities: Float[Tensor, "tokens vocab"],
    target_output: Int[Tensor, "batch target"],
    real: Bool[Tensor, "batch target"],
) -> Float[Tensor, "batch target"]:
    scores = log_probabilities.new_zeros(real.shape)
    scores[real] = log_probabilities.gather(1, target_output[real][:, None]).squeeze(1)
    return scores


@torch.inference_mode()
def attention_maps(
    model: Transformer,
    source: Source,
    target_input: Int[Tensor, "batch target"],
) -> dict[Kind, list[Float[Tensor, "batch head query key"]]]:
    """The weights of every head, one tensor per layer, by the kind of attention.

    The weights of a query sum to one over its visible keys. Query ``i`` of ``decoder`` and
    ``cross`` is the step that reads ``target_input[:i + 1]`` and predicts the next token.
    """
    with ExitStack() as recorded:
        maps = {
            kind: recorded.enter_context(recording(layers))
            for kind, layers in attentions(model).items()
        }
        model(source, target_input)
    return maps


@dataclass(frozen=True)
class Attended:
    """One kind of attention over a batch."""

    weights: list[Float[Tensor, "batch head query key"]]
    """One tensor a layer, the first layer first."""
    visible: Bool[Tensor, "batch query key"]
    """Visible keys of each query; none if the query is padding."""
    separator: Bool[Tensor, "batch key"]
    """Position of the end-of-sentence symbol among the keys."""


def forced_attention(
    model: Transformer, sources: Sequence[Row], targets: Sequence[Row]
) -> tuple[Batch, dict[Kind, Attended]]:
    """The attention over pairs of subword ids (without bos or eos); see ``attention_maps``.

    The positions of a source of vectors are those of the encoder, with its class token.
    """
    device = next(model.parameters()).device
    batch = collate(sources, targets).to(device)
    source = batch.source
    target = batch.target_input
    with evaluating(model):
        maps = attention_maps(model, source, target)
    reads = is_token(source)
    ends = torch.zeros_like(reads) if source.is_floating_point() else source == EOS
    if model.config.class_token:  # which the encoder puts first
        reads = F.pad(reads, (1, 0), value=True)
        ends = F.pad(ends, (1, 0), value=False)
    # batch source -> batch 1 1 source
    source_mask = reads[:, None, None, :]
    encoder = model.encoder.attention_context(reads.size(1), 0, source_mask, device).dense_mask()
    decoder = model.decoder.attention_context(target.size(1), 0, None, device).dense_mask()
    writes = target != PAD
    seen: dict[Kind, tuple[Tensor, Tensor, Tensor, Mask | None]] = {
        "encoder": (reads, reads, ends, encoder),
        "decoder": (writes, writes, target == EOS, decoder),
        "cross": (writes, reads, ends, None),
    }
    attended = {}
    for kind in maps:
        queries, keys, separator, mask = seen[kind]
        visible = queries[:, :, None] & keys[:, None, :]
        if mask is not None:
            # batch 1 query key -> batch query key; every pattern is the same for all heads
            visible = visible & mask[:, 0]
        attended[kind] = Attended(maps[kind], visible, separator)
    return batch, attended
