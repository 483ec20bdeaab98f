"""Datasets whose items are whole batches, asked for by a key.

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


class KeyedDataset(Dataset[B], ABC):
    """Makes the batch of a key, whole: use it with ``batch_size=None``."""

    @abstractmethod
    def __getitem__(self, key: BatchKey) -> B: ...


class PlannedDataset(KeyedDataset[B]):
    """Gives lengths to plan batches with, too."""

    @property
    def parts(self) -> Sequence["PlannedDataset[B]"]:
        """The corpora, in the order in which keys count them; of one itself."""
        return (self,)

    @abstractmethod
    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target that batches are to be planned with."""


class MixedDataset(PlannedDataset[Batch]):
    """Several corpora; a key says which of them its batch is of."""

    def __init__(self, parts: Sequence[PlannedDataset[Batch]]) -> None:
        """Serve these corpora, in the order in which keys count them."""
        self._parts = tuple(parts)

    @property
    def parts(self) -> Sequence[PlannedDataset[Batch]]:
        """The corpora."""
        return self._parts

    def __getitem__(self, key: BatchKey) -> Batch:
        return self.parts[key.corpus][key]

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of all, corpus after corpus."""
        sources, targets = zip(*(part.lengths() for part in self.parts), strict=True)
        return np.concatenate(sources), np.concatenate(targets)
