"""What attention heads do: measured over sentence pairs, described, and shown for one pair.

Sources: Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 4; Clark et al. 2019,
"What Does BERT Look At?", section 3.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, repeat
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.batching.batch import Row
from transformer.data.corpora.evaluation_text import run_split
from transformer.data.text.parallel import AnotherTarget, Pair
from transformer.data.text.word_alignment import Links, WordLinks
from transformer.decoding.alignment import word_links
from transformer.decoding.batching import bucket_batches, overlong, pair_lengths
from transformer.decoding.forced_decoding import forced_attention
from transformer.decoding.translator import Translator
from transformer.evaluation.alignment_error import count_links
from transformer.settings.data import DataConfig

MAJORITY = 0.5
"""Minimal mean weight, or mean maximum, that describes a head."""
POSITIONAL = 0.9
"""Minimal fraction of queries with their strongest key at one offset (Voita et al. 2019)."""
BROAD = 0.8
"""Minimal entropy of a broad head, relative to that of equal weights."""

_OFFSETS = {"previous": -1, "same": 0, "next": 1}
_INDICES = (*_OFFSETS, "first", "separator")
_PEAKS = tuple(f"{name}_peak" for name in _OFFSETS)
_MEASURES = (*_INDICES, *_PEAKS, "confidence", "entropy", "possible_entropy")


@dataclass(frozen=True, kw_only=True)
class HeadCharacter:
    """Means over the queries that see at least two keys.

    A position counts only for the queries that see a key there. None: no query did.

    Attributes:
        previous, same, next: Weight on the key before, at and after the query's own position.
        previous_peak, same_peak, next_peak: Fraction of queries whose strongest key is there.
        confidence: Largest weight, except on the end-of-sentence symbol (Voita et al. 2019).
        entropy, possible_entropy: Of the weights, and of equal weights over the visible keys; nats.
        alignment_error: Alignment error rate of the word links of the head; None if not measured.
    """

    previous: float | None
    same: float | None
    next: float | None
    first: float | None
    separator: float | None
    previous_peak: float | None
    same_peak: float | None
    next_peak: float | None
    confidence: float | None
    entropy: float | None
    possible_entropy: float | None
    alignment_error: float | None = None

    @property
    def relative_entropy(self) -> float | None:
        """The entropy relative to the possible entropy: 0 is one key, 1 is equal weights."""
        if self.entropy is None or not self.possible_entropy:
            return None
        return self.entropy / self.possible_entropy

    def to_json(self) -> dict[str, float | None]:
        return asdict(self) | {"relative_entropy": self.relative_entropy}


@dataclass(frozen=True)
class HeadTotals:
    """Sums over the queries of a batch; those of several batches add up."""

    sums: Float[Tensor, "measure head"]
    counts: Int[Tensor, " measure"]

    def __add__(self, other: "HeadTotals") -> "HeadTotals":
        return HeadTotals(self.sums + other.sums, self.counts + other.counts)

    def characters(self) -> list[HeadCharacter]:
        counts = self.counts.tolist()
        means = (
            [value / count if count else None for value, count in zip(values, counts, strict=True)]
            for values in self.sums.T.tolist()
        )
        return [HeadCharacter(**dict(zip(_MEASURES, values, strict=True))) for values in means]


def head_totals(
    weights: Float[Tensor, "batch head query key"],
    visible: Bool[Tensor, "batch query key"],
    separator: Bool[Tensor, "batch key"],
) -> HeadTotals:
    """Measure the heads of a layer; rows of ``weights`` sum to one over the ``visible`` keys."""
    weights = weights.double().masked_fill(~visible[:, None], 0.0)
    strongest = weights.argmax(dim=-1, keepdim=True)
    seen = visible.sum(dim=-1)
    free = seen >= 2
    sums = []
    counts = []

    def add(
        values: Float[Tensor, "batch #head query"], counted: Bool[Tensor, "batch query"]
    ) -> None:
        total = values.masked_fill(~counted[:, None], 0.0).sum(dim=(0, 2))
        sums.append(total.expand(weights.size(1)))
        counts.append(counted.sum())

    indices = _indices(visible, separator)
    for name in _INDICES:
        is_there = indices[name]
        add((weights * is_there[:, None]).sum(dim=-1), is_there.any(dim=-1) & free)
    for name in _OFFSETS:
        is_there = indices[name]
        # batch query key -> batch head query: is the strongest key there?
        peak = is_there[:, None].expand(weights.shape).gather(-1, strongest)[..., 0]
        add(peak.double(), is_there.any(dim=-1) & free)
    tokens = visible & ~separator[:, None]
    add((weights * tokens[:, None]).amax(dim=-1), tokens.any(dim=-1) & free)
    add(torch.special.entr(weights).sum(dim=-1), free)
    add(seen.clamp(min=1).double().log()[:, None], free)
    return HeadTotals(torch.stack(sums), torch.stack(counts))


def _indices(
    visible: Bool[Tensor, "batch query key"], separator: Bool[Tensor, "batch key"]
) -> dict[str, Bool[Tensor, "batch query key"]]:
    queries = torch.arange(visible.size(1), device=visible.device)
    keys = torch.arange(visible.size(2), device=visible.device)
    indices = {
        name: (keys == queries[:, None] + offset) & visible for name, offset in _OFFSETS.items()
    }
    return indices | {"first": (keys == 0) & visible, "separator": separator[:, None] & visible}


Characters = dict[str, list[list[HeadCharacter]]]
"""Of the heads of each layer, by the kind of attention."""

Proposals = dict[tuple[int, int], list[tuple[Links, Links, Links]]]
"""Proposed, sure and possible links of each sentence, by layer and head."""


@dataclass(frozen=True)
class EncodedPair:
    """A pair as subword ids without bos or eos, or vectors, and its gold links if known."""

    source: Row
    target: list[int]
    gold: WordLinks | None = None
    texts: Pair = ("", "")
    """What the ids spell, where ``gold`` is known."""


def corpus_pairs(
    translator: Translator, data: DataConfig, split: str, sentences: int
) -> list[EncodedPair]:
    """The first sources of a split of the run's corpus with their first targets, without blank and
    too long pairs."""
    text = run_split(data, split, training=True)
    links = text.word_links() if text.links is not None else repeat(None)
    linked = zip(text, links, strict=False)
    first = ((pair, links) for pair, links in linked if not isinstance(pair[1], AnotherTarget))
    chosen = list(islice(first, sentences))
    pairs = translator.tokenizer.encode_pairs([pair for pair, _ in chosen])
    limits = translator.model.max_lengths
    encoded = [
        EncodedPair(source, target, links, texts)
        for (source, target), (texts, links) in zip(pairs, chosen, strict=True)
        if len(source) and target and overlong((source, target), limits) is None
    ]
    if not encoded:
        raise InputError(
            f"the first {sentences} lines of split={split} hold no sentence pair to measure on"
        )
    return encoded


def survey(translator: Translator, pairs: Sequence[EncodedPair]) -> Characters:
    """Measure every head under teacher forcing, those of the cross-attention also by gold links."""
    totals: dict[str, list[HeadTotals]] = {}
    proposed: Proposals = {}
    known = all(pair.gold is not None for pair in pairs)
    lengths = pair_lengths((pair.source, pair.target) for pair in pairs)
    for indices in bucket_batches(lengths, translator.batch_tokens):
        batch = [pairs[index] for index in indices]
        sources = [pair.source for pair in batch]
        targets = [pair.target for pair in batch]
        _, attention = forced_attention(translator.model, sources, targets)
        for kind, attended in attention.items():
            layers = [
                head_totals(weights, attended.visible, attended.separator)
                for weights in attended.weights
            ]
            if kind in totals:
                layers = [old + new for old, new in zip(totals[kind], layers, strict=True)]
            totals[kind] = layers
        if known:
            _propose(proposed, attention["cross"].weights, batch, translator)
    characters = {kind: [layer.characters() for layer in layers] for kind, layers in totals.items()}
    if known:
        characters["cross"] = [
            [
                replace(character, alignment_error=count_links(proposed[layer, head]).error_rate)
                for head, character in enumerate(heads)
            ]
            for layer, heads in enumerate(characters["cross"])
        ]
    return characters


def _propose(
    proposed: Proposals,
    layers: Sequence[Float[Tensor, "batch head target source"]],
    pairs: Sequence[EncodedPair],
    translator: Translator,
) -> None:
    tokenizer = translator.tokenizer
    near_best = translator.aligner.near_best
    for row, pair in enumerate(pairs):
        sure, possible = pair.gold or ((), ())
        source_words = tokenizer.source_words(pair.source, pair.texts[0])
        target_words = tokenizer.target_words(pair.target, pair.texts[1])
        for layer, weights in enumerate(layers):
            real = weights[row, :, : len(target_words), : len(source_words)].float().cpu()
            for head, of_head in enumerate(real):
                links = word_links(of_head, source_words, target_words, near_best)
                proposed.setdefault((layer, head), []).append(
                    (links, frozenset(sure), frozenset(possible))
                )


_TITLES = {
    "previous": "the previous position",
    "same": "the same position",
    "next": "the next position",
    "first": "the first position",
    "separator": "the end-of-sentence symbol",
}


def describe(head: HeadCharacter) -> str:
    """Describe a head, with its numbers, and its alignment error if known."""
    error = head.alignment_error
    return _rule(head) + ("" if error is None else f"; AER {error:.3f}")


def _rule(head: HeadCharacter) -> str:
    measured = {name: getattr(head, name) for name in _INDICES}
    weights = {name: value for name, value in measured.items() if value is not None}
    ranked = sorted(weights, key=lambda name: -weights[name])
    if head.confidence is None and not ranked:
        return "not measured: no query had a choice"
    if ranked and weights[ranked[0]] >= MAJORITY:
        return f"attends to {_TITLES[ranked[0]]} ({weights[ranked[0]]:.2f})"
    for name in _OFFSETS:
        peak = getattr(head, f"{name}_peak")
        if peak is not None and peak >= POSITIONAL:
            return f"strongest at {_TITLES[name]} ({peak:.0%} of queries)"
    if head.relative_entropy is not None and head.relative_entropy >= BROAD:
        return f"broad (entropy {head.entropy:.1f} of {head.possible_entropy:.1f} nats)"
    if head.confidence is not None and head.confidence >= MAJORITY:
        return f"picks one token, at no fixed place (mean maximum {head.confidence:.2f})"
    largest = ", ".join(f"{_TITLES[name]} {weights[name]:.2f}" for name in ranked[:2])
    return f"mixed ({largest})"


@dataclass(frozen=True)
class NamedHead:
    """The best head by one measure, and its value."""

    title: str
    layer: int
    head: int
    text: str


def best_heads(layers: Sequence[Sequence[HeadCharacter]], alignments: int = 3) -> list[NamedHead]:
    """The best aligned, positional, most confident and broadest heads of a kind."""
    named = [
        NamedHead("word alignment", *index, f"AER {value:.3f}")
        for value, index in _ranked(layers, "alignment_error")[::-1][:alignments]
    ]
    named += [
        NamedHead(_TITLES[name], *index, f"{value:.2f}")
        for name in _INDICES
        for value, index in _ranked(layers, name)[:1]
        if value >= MAJORITY
    ]
    for value, index in _ranked(layers, "confidence")[:1]:
        named.append(NamedHead("most confident", *index, f"mean maximum {value:.2f}"))
    for value, index in _ranked(layers, "relative_entropy")[:1]:
        named.append(NamedHead("broadest", *index, f"{value:.0%} of the possible entropy"))
    return named


def _ranked(
    layers: Sequence[Sequence[HeadCharacter]], measure: str
) -> list[tuple[float, tuple[int, int]]]:
    """The values of a measure with their layer and head, the largest first."""
    values = []
    for layer, heads in enumerate(layers):
        for head, character in enumerate(heads):
            value = getattr(character, measure)
            if value is not None:
                values.append((value, (layer, head)))
    return sorted(values, key=lambda pair: pair[0], reverse=True)


@dataclass(frozen=True)
class AttentionKind:
    """One kind of attention over one sentence pair: a query a row, a key a column."""

    name: str
    """``encoder``, ``decoder`` or ``cross``."""
    title: str
    note: str
    query_name: str
    key_name: str
    queries: Sequence[str]
    keys: Sequence[str]
    weights: Float[Tensor, "layer head query key"]
    visible: Bool[Tensor, "query key"]
    characters: Sequence[Sequence[HeadCharacter]]
    """Of each head of each layer, over many sentences."""

    def to_json(self) -> dict[str, Any]:
        heads = [
            {"layer": layer, "head": head, "words": describe(character), **character.to_json()}
            for layer, row in enumerate(self.characters)
            for head, character in enumerate(row)
        ]
        return {
            "kind": self.name,
            "queries": list(self.queries),
            "keys": list(self.keys),
            "best": [asdict(named) for named in best_heads(self.characters)],
            "heads": heads,
        }


@dataclass(frozen=True)
class AttentionView:
    """All attention of a model over one sentence pair."""

    source: str
    target: str
    forced: bool
    checkpoint: str
    size: str
    measured: str
    """The text that the heads were measured on, for people, of so many sentence pairs."""
    sentences: int
    kinds: Sequence[AttentionKind]

    def to_json(self) -> dict[str, Any]:
        """Every measure, as plain values; layers and heads are counted from 0."""
        return {
            "source": self.source,
            "target": self.target,
            "forced": self.forced,
            "checkpoint": self.checkpoint,
            "model": self.size,
            "measured": self.measured,
            "sentences": self.sentences,
            "attention": [kind.to_json() for kind in self.kinds],
        }
