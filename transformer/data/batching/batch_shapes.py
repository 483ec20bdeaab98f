"""Few shapes for all batches, so that a CUDA graph of each shape can compute an update.

A shape is a number of rows and a length for each side. Pairs are divided among the shapes by both
lengths, and each shape has as many rows as its batches need. All of it follows from the lengths.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int

from transformer.common.errors import InputError
from transformer.data.batching.batch import BatchShape
from transformer.data.batching.batch_sequence import EpochBatches, EpochPlan

CELLS = 1000
"""Different pairs of lengths that are merged at most; more of them are rounded up before."""
LABEL_STEP = 64
"""The labels of a shape are a multiple of it."""
DEVIATIONS = 4
"""The labels of a shape are the mean of its batches and so many standard deviations."""

Lengths = Int[np.ndarray, " pair"]


def choose_boxes(source: Lengths, target: Lengths, count: int) -> list[tuple[int, int]]:
    """Choose up to ``count`` pairs of lengths, source and target, the smallest first.

    Every pair fits one. From all lengths that occur, the two boxes are merged that add the fewest
    tokens, until so many are left.
    """
    boxes = _cells(source, target)
    # Tokens that merging two of them adds.
    added = _added(boxes, boxes)
    np.fill_diagonal(added, np.inf)
    while len(boxes) > count:
        kept, gone = sorted(divmod(int(added.argmin()), len(boxes)))
        boxes[kept, :2] = np.maximum(boxes[kept, :2], boxes[gone, :2])
        boxes[kept, 2] += boxes[gone, 2]
        boxes = np.delete(boxes, gone, 0)
        added = np.delete(np.delete(added, gone, 0), gone, 1)
        added[kept] = added[:, kept] = _added(boxes[kept : kept + 1], boxes)[0]
        added[kept, kept] = np.inf
    sides = sorted(((int(s), int(t)) for s, t, _ in boxes), key=lambda box: (sum(box), box))
    return list(dict.fromkeys(sides))


def _cells(source: Lengths, target: Lengths) -> Int[np.ndarray, "cell 3"]:
    """Lengths that occur and how often; if they are too many, those that round up to the same."""
    # Both lengths as one number, so that all pairs are sorted once.
    base = int(target.max()) + 1
    keys, counts = np.unique(source.astype(np.int64) * base + target, return_counts=True)
    lengths = np.stack(np.divmod(keys, base), axis=1)
    step = 1
    while True:
        rounded = -(-lengths // step)
        cells, index = np.unique(rounded[:, 0] * base + rounded[:, 1], return_inverse=True)
        if len(cells) <= CELLS:
            break
        step += 1
    made = np.zeros((len(cells), 3), dtype=np.int64)
    np.maximum.at(made[:, :2], index, lengths)
    np.add.at(made[:, 2], index, counts)
    return made


def _added(
    some: Int[np.ndarray, "some 3"], boxes: Int[np.ndarray, "box 3"]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    longest = np.maximum(some[:, None, :2], boxes[None, :, :2]).sum(-1)
    pairs = some[:, None, 2] + boxes[None, :, 2]
    tokens = some[:, None, :2].sum(-1) * some[:, None, 2]
    tokens = tokens + boxes[None, :, :2].sum(-1) * boxes[None, :, 2]
    added: np.ndarray[Any, np.dtype[np.float64]] = (longest * pairs - tokens).astype(np.float64)
    return added


@dataclass(frozen=True)
class _Group:
    """The pairs of a shape, and how many batches they make."""

    shape: BatchShape
    pairs: Int[np.ndarray, " pair"]
    batches: int


class ShapedPlan(EpochPlan):
    """Batches of few shapes; all epochs have the same number of each.

    Rows times the longest side of a shape never exceed the budget.
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths,
        *,
        batch_tokens: int,
        shapes: int,
        seed: int = 0,
    ) -> None:
        """Choose up to ``shapes`` shapes for lengths in subwords without eos.

        Raises InputError for a pair longer than the budget, or without pairs.
        """
        super().__init__(source_lengths, target_lengths, batch_tokens=batch_tokens, seed=seed)
        self._most_shapes = shapes
        if not len(self._source):
            raise InputError("0 pairs are too few for a batch; give more text")
        self._groups = self._grouped(choose_boxes(self._source, self._target, shapes))

    def __len__(self) -> int:
        return sum(group.batches for group in self._groups)

    @cached_property
    def shapes(self) -> Sequence[BatchShape]:
        """All shapes, the smallest first."""
        return [group.shape for group in self._groups]

    def epoch(self, epoch: int) -> EpochBatches:
        random = np.random.default_rng([self._seed, epoch, 0])
        batches: list[Int[np.ndarray, " batch"]] = []
        numbers: list[int] = []
        for number, group in enumerate(self._groups):
            batches += np.array_split(random.permutation(group.pairs), group.batches)
            numbers += [number] * group.batches
        order = np.random.default_rng([self._seed, epoch, 1]).permutation(len(batches))
        ordered = [batches[index] for index in order]
        bounds = np.cumsum([0, *map(len, ordered)])
        return EpochBatches(
            np.concatenate(ordered), bounds, [self.shapes[numbers[index]] for index in order]
        )

    def identity(self) -> dict[str, int]:
        return super().identity() | {"shapes": self._most_shapes}

    def positions(self, batches: EpochBatches) -> Int[np.ndarray, " batch"]:
        assert batches.shapes is not None
        return np.array([shape.positions for shape in batches.shapes], dtype=np.int64)

    def _grouped(self, boxes: Sequence[tuple[int, int]]) -> list[_Group]:
        groups = []
        index = np.int32 if len(self._source) < 2**31 else np.int64
        left = np.arange(len(self._source), dtype=index)
        for source, target in boxes:
            fits = (self._source[left] <= source) & (self._target[left] <= target)
            pairs, left = left[fits], left[~fits]
            if len(pairs):
                groups.append(self._group(pairs))
        return groups

    def _group(self, pairs: Int[np.ndarray, " pair"]) -> _Group:
        """Batches of equal size, so that hardly a row is empty."""
        source = int(self._source[pairs].max())
        targets = self._target[pairs]
        target = int(targets.max())
        batches = math.ceil(len(pairs) / (self._batch_tokens // max(source, target)))
        rows = math.ceil(len(pairs) / batches)
        expected = rows * targets.mean() + DEVIATIONS * targets.std() * math.sqrt(rows)
        labels = math.ceil(expected / LABEL_STEP) * LABEL_STEP
        shape = BatchShape(rows, source, target, min(labels, rows * target))
        return _Group(shape, pairs, batches)
