"""Batches of a tagger: sentences, and a tag for the first piece of each word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.data.batching.batch import Row, pad_source
from transformer.data.tokenization.tokenizer import PAD

UNTAGGED = -1
"""In place of a tag where no word begins."""


@dataclass(frozen=True)
class TaggedBatch:
    """Sentences and their tags of one step; all int64, padded at the right."""

    source: Int[Tensor, "batch source"]
    """Pieces and EOS."""
    tags: Int[Tensor, "batch source"]
    """A tag at the first piece of each word, UNTAGGED elsewhere."""

    @property
    def size(self) -> int:
        """Number of sentences."""
        return self.source.shape[0]

    @property
    def tokens(self) -> int:
        """Pieces and ends of sentences without padding."""
        return int((self.source != PAD).sum())

    @property
    def positions(self) -> int:
        """The same with padding."""
        return self.source.numel()

    def text(self) -> tuple[Int[Tensor, "batch source"]]:
        """Return the rows of pieces that stand for text, with eos and padding."""
        return (self.source,)

    def halves(self) -> tuple["TaggedBatch", "TaggedBatch"]:
        """The first and the second half of the sentences, without padding that neither needs."""
        middle = (self.size + 1) // 2
        return self._rows(slice(None, middle)), self._rows(slice(middle, None))

    def _rows(self, rows: slice) -> "TaggedBatch":
        length = int((self.source[rows] != PAD).any(0).sum())
        return TaggedBatch(self.source[rows, :length], self.tags[rows, :length])

    def to(self, device: torch.device | str, **kwargs: Any) -> "TaggedBatch":
        """Return the batch on ``device``; Lightning calls this with ``non_blocking=True``."""
        return TaggedBatch(self.source.to(device, **kwargs), self.tags.to(device, **kwargs))

    def pin_memory(self) -> "TaggedBatch":
        """Return the batch in page-locked memory; the DataLoader calls this."""
        return TaggedBatch(self.source.pin_memory(), self.tags.pin_memory())


def collate_tagged(sources: Sequence[Row], tags: Sequence[Row]) -> TaggedBatch:
    """Pad sentences of piece ids (without eos), and a tag or UNTAGGED for each piece."""
    source = pad_source(sources)
    padded = torch.full_like(source, UNTAGGED)
    for row, labels in zip(padded, tags, strict=True):
        row[: len(labels)] = torch.as_tensor(labels)
    return TaggedBatch(source, padded)
