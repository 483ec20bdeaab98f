"""Packed batches: the sentences of each side laid end to end, in one row of a fixed length.

Does not know who attends to what, nor the order of batches (packed_plan.py).
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from transformer.common.segments import Packing, Segments
from transformer.data.batching.batch import Batch, flat_indices
from transformer.data.tokenization.tokenizer import PAD

MIN_PADDING = 16
"""Positions of padding after the last sentence, at least: enough to make up to 16 segments of the
padding on both sides. With one side full, the padding of the other would be queries without keys,
or one long segment."""


@dataclass(frozen=True)
class PackedBatch(Batch):
    """A batch of one row on each side, with ``packing``."""

    @property
    def size(self) -> int:
        """Number of sentence pairs."""
        return self._packing.source.padded.shape[0]

    def text(self) -> tuple[Int[Tensor, "batch source"], Int[Tensor, "batch target"]]:
        """Return source and target subwords, with eos, a padded row for each sentence."""
        return self.unpacked().text()

    def halves(self) -> tuple["PackedBatch", "PackedBatch"]:
        """Return the first and the second half of the sentence pairs, as short as they can be."""
        first, second = (pack(half) for half in self.to("cpu").unpacked().halves())
        return first.to(self.source.device), second.to(self.source.device)

    def unpacked(self) -> Batch:
        """Return the batch with a padded row for each sentence."""
        source, target = self._packing.source, self._packing.target
        return Batch(
            source=_rows(self.source, source),
            target_input=_rows(self.target_input, target),
            target_output=_rows(self.target_output, target),
            labelled=flat_indices(target.mask),
        )

    @property
    def _packing(self) -> Packing:
        assert self.packing is not None
        return self.packing


class PackedDataset(Dataset[PackedBatch]):
    """Packs the padded batches of another dataset."""

    def __init__(self, dataset: Dataset[Batch], batch_tokens: int) -> None:
        """Pack batches of at most ``batch_tokens`` tokens on either side, all to one length."""
        self._dataset, self._length = dataset, packed_length(batch_tokens)

    def __getitem__(self, key: Any) -> PackedBatch:
        return pack(self._dataset[key], self._length)


def packed_length(batch_tokens: int) -> int:
    """Return the positions of a side that has at most so many tokens."""
    return batch_tokens + MIN_PADDING


def pack(batch: Batch, length: int | None = None) -> PackedBatch:
    """Lay the sentences of a padded batch end to end, and pad both sides to ``length`` positions.

    None: as many as the longer side needs. Raises ValueError if there are too few, or for word
    links, which packed batches do not have.
    """
    if batch.alignment is not None:
        raise ValueError("a packed batch has no word links")
    masks = [side != PAD for side in (batch.source, batch.target_output)]
    lengths = [mask.sum(1) for mask in masks]
    tokens = [int(each.sum()) for each in lengths]
    length = length or packed_length(max(tokens))
    if max(tokens) + MIN_PADDING > length:
        raise ValueError(f"{max(tokens)} tokens and padding do not fit {length} positions")
    longest = max(int(each.max()) for each in lengths)
    # As long as sentences, unless one side has too little padding for so many.
    parts = min(MIN_PADDING, -(-(length - min(tokens)) // longest))
    source, target = masks
    return PackedBatch(
        source=_laid_out(batch.source[source], length),
        target_input=_laid_out(batch.target_input[target], length),
        target_output=_laid_out(batch.target_output[target], length),
        labelled=torch.arange(tokens[1]),
        packing=Packing(_segments(source, length, parts), _segments(target, length, parts)),
    )


def _segments(mask: Bool[Tensor, "sentence width"], length: int, parts: int) -> Segments:
    """Return the segments of the sentences of a mask, and of the padding up to ``length``."""
    sentences, ends = len(mask), mask.sum(1).cumsum(0)
    tokens = int(ends[-1])
    # Empty segments make their number a power of two, so that few shapes occur.
    offsets = torch.full((1 + 2 ** (sentences + parts - 1).bit_length(),), length)
    offsets[0] = 0
    offsets[1 : 1 + sentences] = ends
    padding = torch.arange(1, parts + 1) * (length - tokens) // parts
    offsets[1 + sentences : 1 + sentences + parts] = tokens + padding
    _, positions = mask.nonzero(as_tuple=True)
    padded = torch.zeros(mask.shape, dtype=torch.int64)
    padded[mask] = torch.arange(tokens)
    return Segments(
        positions=_laid_out(positions, length),
        offsets=offsets.to(torch.int32),
        longest=int(offsets.diff().max()),
        padded=padded,
        mask=mask,
        cells=_laid_out(flat_indices(mask), length)[0],
    )


def _laid_out(values: Int[Tensor, " token"], length: int) -> Int[Tensor, "1 length"]:
    """Return one row, with zeros at its end: padding, and indices that nobody uses."""
    assert PAD == 0
    return F.pad(values, (0, length - len(values)))[None]


def _rows(side: Int[Tensor, "1 length"], segments: Segments) -> Int[Tensor, "sentence width"]:
    return side[0, segments.padded].masked_fill(~segments.mask, PAD)
