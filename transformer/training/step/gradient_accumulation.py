"""The gradient of an update, summed over its micro-batches; too large batches are halved.

A rank waits for other ranks only after all its micro-batches. So a rank that runs out of memory can
repeat its part alone.
"""

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.batching.loader import Update
from transformer.training.step.out_of_memory import free_memory, runs_out_of_memory

logger = logging.getLogger(__name__)

Path = tuple[int, ...]
"""The number of a micro-batch in the run, and the indices of its half, quarter, …"""

Sending = Callable[[], AbstractContextManager[Any]]
"""Opens the block in which the last backward pass of an update runs."""


@dataclass
class Totals:
    """Sums over the micro-batches of an update.

    ``tokens`` is a tensor if it is summed over several ranks. ``sums`` are losses without gradient.
    ``signals`` counts the ranks that have received each signal.
    """

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

    If a batch is too large for the memory, all batches with as many positions are halved. A batch
    has a ``size`` (number of sentences), ``positions`` (tokens with padding, which determine the
    memory) and ``halves()``.

    Args:
        backward: Adds the gradient of one micro-batch, with random numbers that depend on its path;
            returns its number of tokens and the sums to log.
        clear: Deletes all gradients.

    Attributes:
        alone: Whether a rank computes without the other ranks, so that it may repeat its part.
    """

    def __init__(
        self,
        backward: Callable[[Any, Path], tuple[int, dict[str, Tensor]]],
        clear: Callable[[], None],
    ) -> None:
        self.backward, self.clear = backward, clear
        self.max_positions = float("inf")
        self.alone = True

    def __call__(self, update: Update[Any], sending: Sending = nullcontext) -> Totals:
        """Compute the gradient of the update; the last backward pass runs within ``sending``."""
        while True:
            numbered = zip(update.batches, update.numbers, strict=True)
            parts = [part for batch, n in numbered for part in self._parts(batch, (n,))]
            self.clear()
            totals = Totals()
            for index, (batch, path) in enumerate(parts, 1):
                within = sending if index == len(parts) else nullcontext
                if runs_out_of_memory(partial(self._add, totals, batch, path, within)):
                    break
            else:
                return totals
            self.clear()
            self._make_room(batch)

    def _add(self, totals: Totals, batch: Any, path: Path, within: Sending) -> None:
        with within():
            tokens, sums = self.backward(batch, path)
        totals.tokens += tokens
        for name, value in sums.items():
            totals.sums[name] = totals.sums[name] + value if name in totals.sums else value

    def _parts(self, batch: Any, path: Path) -> Iterator[tuple[Any, Path]]:
        """The batch, or its parts that are small enough, each with its path."""
        if batch.positions <= self.max_positions or batch.size == 1:
            yield batch, path
            return
        for index, half in enumerate(batch.halves()):
            yield from self._parts(half, (*path, index))

    def _make_room(self, batch: Any) -> None:
        """Halve batches of this size from now on; raises InputError if it cannot be halved."""
        free_memory()
        pairs = "a single sentence pair" if batch.size == 1 else f"{batch.size} sentence pairs"
        size = f"{pairs}, {batch.positions:,} tokens of both sides with padding"
        if not self.alone or batch.size == 1:
            reason = "" if self.alone else ", and ranks with sharded weights cannot halve a batch"
            smaller = "data.batch_tokens or data.max_length lower, or gradient_checkpointing=true"
            raise InputError(
                f"the device runs out of memory with {size}{reason}; set {smaller}, or take a "
                "smaller model"
            )
        self.max_positions = batch.positions - 1
        logger.warning(
            "out of memory with %s: such batches are halved from now on, with the same gradient; a "
            "lower data.batch_tokens saves the time",
            size,
        )
