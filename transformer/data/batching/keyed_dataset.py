"""Datasets whose items are whole batches, by key: used with ``batch_size=None``.

Do not know how a batch is made, nor the order of the keys.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Int
from torch.utils.data import Dataset

from transformer.data.batching.batch import Batch
from transformer.data.batching.sampler import BatchKey

B = TypeVar("B")


class PlannedDataset(Dataset[B], ABC):
    """Makes the whole batch of a key, and has lengths to plan batches with."""

    @property
    def parts(self) -> Sequence["PlannedDataset[B]"]:
        """The corpora, in the order of their numbers in keys; a single corpus is its own part."""
        return (self,)

    @abstractmethod
    def __getitem__(self, key: BatchKey) -> B: ...

    @abstractmethod
    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target to plan batches with."""


class MixedDataset(PlannedDataset[Batch]):
    """Several corpora; a key has the number of its corpus."""

    def __init__(self, parts: Sequence[PlannedDataset[Batch]]) -> None:
        """Serve these corpora, in the order of their numbers in keys."""
        self._parts = tuple(parts)

    @property
    def parts(self) -> Sequence[PlannedDataset[Batch]]:
        """The corpora."""
        return self._parts

    def __getitem__(self, key: BatchKey) -> Batch:
        return self.parts[key.corpus][key]

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of all pairs, corpus after corpus."""
        sources, targets = zip(*(part.lengths() for part in self.parts), strict=True)
        return np.concatenate(sources), np.concatenate(targets)
