"""The gradient of an update, over micro-batches; one process halves what is too large for it."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer.data.batching.loader import Update
from transformer.training.step.out_of_memory import BatchHalving, runs_out_of_memory

Path = tuple[int, ...]
"""The number of a micro-batch in the run, and the indices of its half, quarter, …"""

NoSync = Callable[[], AbstractContextManager[Any]]
"""Opens a block whose backward passes sum no gradients over the ranks."""


@dataclass
class Totals:
    """Sums of an update; ``tokens`` of several ranks are a tensor, ``signals`` count ranks."""

    tokens: int | Tensor = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    signals: Tensor | None = None


def seed_for(seed: int, *path: int) -> None:
    """Seed all generators for a micro-batch, so that resuming or repeating draws the same."""
    word = int(np.random.SeedSequence([seed, len(path), *path]).generate_state(1, np.uint64)[0])
    torch.manual_seed(word)
    np.random.seed(word % 2**32)
    random.seed(word)


class Accumulator:
    """Adds up the gradients of the micro-batches of an update.

    ``backward`` adds the gradient of one micro-batch, with random numbers that depend on its path,
    and returns its number of tokens and the sums to log. ``clear`` deletes all gradients.
    """

    def __init__(
        self,
        backward: Callable[[Any, Path], tuple[int, dict[str, Tensor]]],
        clear: Callable[[], None],
    ) -> None:
        self.backward, self.clear = backward, clear
        self.halving = BatchHalving()

    def __call__(self, update: Update[Any], no_sync: NoSync = nullcontext) -> Totals:
        """Add the gradient of an update; all backward passes but the last run in ``no_sync``."""
        while True:
            numbered = zip(update.batches, update.numbers, strict=True)
            parts = [part for batch, n in numbered for part in self.halving.parts(batch, (n,))]
            self.clear()
            totals = Totals()
            for index, (batch, path) in enumerate(parts, 1):
                within = nullcontext if index == len(parts) else no_sync
                if runs_out_of_memory(partial(self._add, totals, batch, path, within)):
                    break
            else:
                return totals
            self.clear()
            self.halving.make_room(batch)

    def _add(self, totals: Totals, batch: Any, path: Path, within: NoSync) -> None:
        with within():
            tokens, sums = self.backward(batch, path)
        totals.tokens += tokens
        for name, value in sums.items():
            totals.sums[name] = totals.sums[name] + value if name in totals.sums else value
