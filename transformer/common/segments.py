"""Where the sentences of a packed batch lie: what batches and models must agree on.

Packed sentences are laid end to end, without padding between them, as in Krell et al. 2021,
"Efficient Sequence Packing without Cross-contamination". It does not know who attends to what.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """The sentences of one side.

    A segment is a sentence, a part of the padding that follows the last one, or empty. Every token
    is in a segment, so that no kernel leaves a result undefined. Indices of tokens count those of
    all rows, one row after another.
    """

    positions: Int[Tensor, "batch length"]
    """Position of each token in its sentence; 0 in the padding."""
    offsets: Int[Tensor, " bound"]
    """Segment k has the tokens from ``offsets[k]`` to ``offsets[k + 1]``; int32."""
    longest: int
    """Tokens of the longest segment."""
    padded: Int[Tensor, "sentence width"]
    """Indices of the tokens in the layout with a padded row for each sentence; 0 at padding."""
    mask: Bool[Tensor, "sentence width"]
    """True at the tokens of that layout."""
    cells: Int[Tensor, " token"]
    """Flat index of each token in that layout; 0 in the padding after the last sentence."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Segments":
        """Return the segments with changed tensors, such as copies on a device."""
        tensors = (self.padded, self.mask, self.cells)
        return Segments(
            change(self.positions), change(self.offsets), self.longest, *map(change, tensors)
        )

    def twice(self) -> "Segments":
        """Return the segments of a batch and, below it, its copy."""
        length = self.positions.numel()
        return Segments(
            self.positions.repeat(2, 1),
            torch.cat((self.offsets, self.offsets[1:] + length)),
            self.longest,
            torch.cat((self.padded, self.padded + length)),
            self.mask.repeat(2, 1),
            torch.cat((self.cells, self.cells + self.padded.numel())),
        )


@dataclass(frozen=True)
class Packing:
    """The segments of both sides; segment k of the target belongs to segment k of the source."""

    source: Segments
    target: Segments

    def each(self, change: Callable[[Tensor], Tensor]) -> "Packing":
        """Return the packing with changed tensors."""
        return Packing(self.source.each(change), self.target.each(change))

    def twice(self) -> "Packing":
        """Return the packing of a batch and, below it, its copy."""
        return Packing(self.source.twice(), self.target.twice())
