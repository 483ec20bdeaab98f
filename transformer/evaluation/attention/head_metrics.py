"""The character of a head (Voita et al. 2019, section 4; Clark et al. 2019, section 3)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

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
    sums, counts = [], []

    def add(
        values: Float[Tensor, "batch #head query"], counted: Bool[Tensor, "batch query"]
    ) -> None:
        total = values.masked_fill(~counted[:, None], 0.0).sum(dim=(0, 2))
        sums.append(total.expand(weights.size(1)))
        counts.append(counted.sum())

    indices = _indices(visible, separator)
    for name in _INDICES:
        there = indices[name]
        add((weights * there[:, None]).sum(dim=-1), there.any(dim=-1) & free)
    for name in _OFFSETS:
        there = indices[name]
        # batch query key -> batch head query: is the strongest key there?
        peak = there[:, None].expand(weights.shape).gather(-1, strongest)[..., 0]
        add(peak.double(), there.any(dim=-1) & free)
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
    weights = {name: value for name in _INDICES if (value := getattr(head, name)) is not None}
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
    values = [
        (value, (layer, head))
        for layer, row in enumerate(layers)
        for head, character in enumerate(row)
        if (value := getattr(character, measure)) is not None
    ]
    return sorted(values, key=lambda pair: pair[0], reverse=True)
