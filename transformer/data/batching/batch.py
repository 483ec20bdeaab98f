"""Batches of pairs and of tagged sentences (teacher forcing: Sutskever et al. 2014, section 2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.settings.tokenizer import BOS, EOS, PAD

Row = Sequence[int] | np.ndarray
"""Subword ids of a sentence, without bos or eos; or vectors of a file, ``length channel``."""
Source = Int[Tensor, "batch source"] | Float[Tensor, "batch source channel"]
"""Tokens padded with PAD, or vectors padded with NaN, so that a tensor tells its lengths."""

UNTAGGED = -1
"""Tag of a subword that does not begin a word."""

P = TypeVar("P", bound="PaddedBatch")


@dataclass(frozen=True)
class PaddedBatch:
    """Sentences of one step as tensors with a row for each, padded with PAD at the right."""

    source: Source
    """Source subwords and EOS; or vectors, without any end."""

    @property
    def size(self) -> int:
        """Number of sentences, or of sentence pairs."""
        return self.source.shape[0]

    @property
    def source_tokens(self) -> int:
        """Source tokens without padding, EOS included; or vectors."""
        return int(is_token(self.source).sum())

    @property
    def tokens(self) -> int:
        """Tokens without padding, EOS included."""
        return self.source_tokens

    @property
    def positions(self) -> int:
        """Tokens of all sides with padding."""
        return sum(side.shape[0] * side.shape[1] for side in self.text())

    def text(self) -> tuple[Tensor, ...]:
        """Return the subwords of the source and, of pairs, of the target, with eos and padding."""
        return (self.source,)

    def halves(self: P) -> tuple[P, P]:
        """Return the first and the second half of the rows, each padded to its longest row."""
        middle = (self.size + 1) // 2
        return self._rows(slice(None, middle)), self._rows(slice(middle, None))

    def to(self: P, device: torch.device | str) -> P:
        return self._each(lambda tensor: tensor.to(device, non_blocking=tensor.is_pinned()))

    def pin_memory(self: P) -> P:
        return self._each(Tensor.pin_memory)

    def _rows(self: P, rows: slice) -> P:
        return replace(self, source=self.source[rows, : _longest(self.source[rows])])

    def _each(self: P, change: Callable[[Tensor], Tensor]) -> P:
        changed = {
            name: change(value) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **changed)


@dataclass(frozen=True)
class Batch(PaddedBatch):
    """Sentence pairs of one training or validation step; all tensors of subwords are int64."""

    target_input: Int[Tensor, "batch target"]
    """BOS and the target subwords: the input of the decoder."""
    target_output: Int[Tensor, "batch target"]
    """Target subwords and EOS: the labels."""
    labeled: Int[Tensor, " token"]
    """Flat indices of the labels without padding; a GPU does not have to count them."""
    alignment: Bool[Tensor, "batch target source"] | None = None
    """With word links: the linked source subwords of each subword of ``target_output``.
    EOS and padding have no links."""

    @property
    def labels(self) -> Int[Tensor, " token"]:
        """The labels without padding, one after another."""
        return self.target_output.take(self.labeled)

    @property
    def target_tokens(self) -> int:
        """Target tokens without padding, EOS included: the tokens of the loss."""
        return len(self.labeled)

    @property
    def tokens(self) -> int:
        return self.source_tokens + self.target_tokens

    def text(self) -> tuple[Source, Int[Tensor, "batch target"]]:
        return self.source, self.target_output

    def _rows(self, rows: slice) -> "Batch":
        source_length = _longest(self.source[rows])
        target_length = _longest(self.target_output[rows])
        labels = self.target_output[rows, :target_length]
        alignment = self.alignment
        if alignment is not None:
            alignment = alignment[rows, :target_length, :source_length]
        return Batch(
            source=self.source[rows, :source_length],
            target_input=self.target_input[rows, :target_length],
            target_output=labels,
            labeled=flat_indices(labels != PAD),
            alignment=alignment,
        )


class BatchShape(NamedTuple):
    """What the tensors of a batch are padded to; lengths include eos."""

    rows: int
    source: int
    target: int
    labels: int

    @property
    def positions(self) -> int:
        """Tokens of both sides."""
        return self.rows * (self.source + self.target)


class Counts(NamedTuple):
    """Sentence pairs and their tokens, EOS included."""

    pairs: int
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True, kw_only=True)
class ShapedBatch(Batch):
    """Sentence pairs padded to a shape that other batches have, too, without word links.

    The loss is that of the pairs alone. A row after them has the source EOS and the target input
    BOS, so that each query sees a key, and no labels. ``labeled`` ends with positions of padding,
    whose labels are PAD.
    """

    counts: Counts
    """Of the pairs; a GPU does not have to count them."""

    @property
    def shape(self) -> BatchShape:
        """Its shape."""
        rows, source = self.source.shape
        return BatchShape(rows, source, self.target_input.shape[1], len(self.labeled))

    @property
    def size(self) -> int:
        return self.counts.pairs

    @property
    def source_tokens(self) -> int:
        return self.counts.source_tokens

    @property
    def target_tokens(self) -> int:
        return self.counts.target_tokens

    @property
    def plain(self) -> Batch:
        """The pairs alone, padded to the longest."""
        return self._rows(slice(None, self.size))

    def halves(self) -> tuple[Batch, Batch]:  # type: ignore[override]
        return self.plain.halves()

    def clone(self) -> "ShapedBatch":
        """A batch with tensors of its own."""
        return self._each(Tensor.clone)

    def copy_(self, other: "ShapedBatch") -> None:
        """Write the tensors of a batch of the same shape into those of this one."""
        for name in ("source", "target_input", "target_output", "labeled"):
            getattr(self, name).copy_(getattr(other, name), non_blocking=True)


def shaped(batch: Batch, shape: BatchShape | None) -> Batch:
    """Pad a batch on the host to a shape, if there is one that it fits."""
    if shape is None or batch.alignment is not None:
        return batch
    rows = shape.rows - batch.size
    source = shape.source - batch.source.shape[1]
    target = shape.target - batch.target_input.shape[1]
    labels = shape.labels - batch.target_tokens
    if min(rows, source, target, labels) < 0:
        return batch
    padded_source, target_input, target_output = (
        F.pad(side, (0, columns, 0, rows), value=PAD)
        for side, columns in (
            (batch.source, source),
            (batch.target_input, target),
            (batch.target_output, target),
        )
    )
    padded_source[batch.size :, 0] = EOS
    target_input[batch.size :, 0] = BOS
    labeled = flat_indices(target_output != PAD)
    unlabeled = flat_indices(target_output == PAD)[:labels]
    return ShapedBatch(
        padded_source,
        target_input,
        target_output,
        torch.cat([labeled, unlabeled]),
        counts=Counts(batch.size, batch.source_tokens, batch.target_tokens),
    )


@dataclass(frozen=True)
class TaggedBatch(PaddedBatch):
    """Sentences and their tags of one step, all int64."""

    tags: Int[Tensor, "batch source"]
    """A tag at the first subword of each word, UNTAGGED elsewhere."""
    labeled: Int[Tensor, " word"]

    @property
    def labels(self) -> Int[Tensor, " word"]:
        return self.tags.take(self.labeled)

    def _rows(self, rows: slice) -> "TaggedBatch":
        length = _longest(self.source[rows])
        tags = self.tags[rows, :length]
        return TaggedBatch(self.source[rows, :length], tags, flat_indices(tags != UNTAGGED))


def is_token(side: Source) -> Bool[Tensor, "batch source"]:
    """True where a side is not padding."""
    return ~side[..., 0].isnan() if side.is_floating_point() else side != PAD


def _longest(side: Source) -> int:
    return int(is_token(side).any(0).sum())


def collate(
    sources: Sequence[Row],
    targets: Sequence[Row],
    links: Sequence[Bool[np.ndarray, "_ _"]] | None = None,
) -> Batch:
    """Pad pairs of subword ids (without bos or eos), and their links if given, into a Batch."""
    shifted = _pad(targets, bos=True)
    # batch (bos subwords eos) -> batch (bos subwords), batch (subwords eos). EOS at the end of a
    # shorter row of the input becomes padding.
    target_input = shifted[:, :-1].masked_fill(shifted[:, :-1] == EOS, PAD)
    target_output = shifted[:, 1:].contiguous()
    source = pad_source(sources)
    alignment = None
    if links is not None:
        alignment = torch.zeros(*target_output.shape, source.shape[1], dtype=torch.bool)
        for row, linked in zip(alignment, links, strict=True):
            row[: linked.shape[0], : linked.shape[1]] = torch.from_numpy(linked)
    labeled = flat_indices(target_output != PAD)
    return Batch(source, target_input, target_output, labeled, alignment)


def collate_tagged(sources: Sequence[Row], tags: Sequence[Row]) -> TaggedBatch:
    """Pad sentences of subword ids (without eos), and a tag or UNTAGGED for each subword."""
    source = pad_source(sources)
    padded = torch.full_like(source, UNTAGGED)
    for row, labels in zip(padded, tags, strict=True):
        row[: len(labels)] = torch.as_tensor(labels)
    return TaggedBatch(source, padded, flat_indices(padded != UNTAGGED))


def flat_indices(chosen: Bool[Tensor, "batch length"]) -> Int[Tensor, " chosen"]:
    """Return the indices of the True elements, row after row."""
    return chosen.flatten().nonzero().squeeze(1)


def pad_source(sources: Sequence[Row]) -> Source:
    """Append EOS to each source and pad at the right, in training and inference.

    Vectors are padded with NaN, and have no end.
    """
    first = sources[0] if len(sources) else None
    if isinstance(first, np.ndarray) and first.ndim == 2:
        longest = max(map(len, sources))
        padded = np.full((len(sources), longest, first.shape[1]), np.nan, dtype=np.float32)
        for row, vectors in zip(padded, sources, strict=True):
            row[: len(vectors)] = vectors
        return torch.from_numpy(padded)
    return _pad(sources, bos=False)


def _pad(rows: Sequence[Row], bos: bool) -> Int[Tensor, "batch length"]:
    """Put EOS after each row, and BOS before it if ``bos``; pad at the right."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    padded = np.full((len(rows), lengths.max(initial=0) + 1 + bos), PAD, dtype=np.int64)
    padded[:, :bos] = BOS
    position = np.arange(padded.shape[1]) - bos
    subwords = (position >= 0) & (position < lengths[:, None])
    if rows:
        padded[subwords] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    padded[np.arange(len(rows)), lengths + bos] = EOS
    return torch.from_numpy(padded)
