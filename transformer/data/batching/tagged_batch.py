"""Batches of a tagger: sentences, and a tag for the first subword of each word."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.data.batching.batch import PaddedBatch, Row, pad_source
from transformer.data.tokenization.tokenizer import PAD

UNTAGGED = -1
"""In place of a tag where no word begins."""


@dataclass(frozen=True)
class TaggedBatch(PaddedBatch):
    """Sentences and their tags of one step, all int64."""

    tags: Int[Tensor, "batch source"]
    """A tag at the first subword of each word, UNTAGGED elsewhere."""

    @property
    def tokens(self) -> int:
        """Subwords and ends of sentences without padding."""
        return self.source_tokens

    @property
    def positions(self) -> int:
        """Subwords and ends of sentences with padding."""
        return self.source.numel()

    def text(self) -> tuple[Int[Tensor, "batch source"]]:
        """Return the subwords, with eos and padding."""
        return (self.source,)

    def _rows(self, rows: slice) -> "TaggedBatch":
        length = int((self.source[rows] != PAD).any(0).sum())
        return TaggedBatch(self.source[rows, :length], self.tags[rows, :length])


def collate_tagged(sources: Sequence[Row], tags: Sequence[Row]) -> TaggedBatch:
    """Pad sentences of subword ids (without eos), and a tag or UNTAGGED for each subword."""
    source = pad_source(sources)
    padded = torch.full_like(source, UNTAGGED)
    for row, labels in zip(padded, tags, strict=True):
        row[: len(labels)] = torch.as_tensor(labels)
    return TaggedBatch(source, padded)
