"""Datasets whose items are whole batches, by key: used with ``batch_size=None``.

Do not know how a batch is made, nor the order of the keys.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Int
from torch.utils.data import Dataset

from transformer.data.batching.sampler import BatchKey

B = TypeVar("B")


class PlannedDataset(Dataset[B], ABC):
    """Makes the whole batch of a key, and has lengths to plan batches with."""

    @abstractmethod
    def __getitem__(self, key: BatchKey) -> B: ...

    @abstractmethod
    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target to plan batches with."""


@dataclass(frozen=True)
class MixedDataset(Dataset[B]):
    """Several corpora; a key has the number of its corpus."""

    parts: Sequence[PlannedDataset[B]]
    """In the order of their numbers."""

    def __getitem__(self, key: BatchKey) -> B:
        return self.parts[key.corpus][key]
