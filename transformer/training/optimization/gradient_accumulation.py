"""The gradient of an update: micro-batch after micro-batch, then summed over the ranks once.

No rank waits for another before all its micro-batches are done. A rank that runs out of memory
can therefore split the micro-batch and repeat its part, without the others. It knows neither the
content of a batch nor the use of the gradient.
"""

import gc
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer.common.errors import InputError, is_out_of_memory
from transformer.data.batching.loader import Update

logger = logging.getLogger(__name__)


@dataclass
class Totals:
    """Sums over the micro-batches of an update.

    Attributes:
        tokens: Number of predictions; a tensor once it is that of several ranks.
        sums: Losses and other logged sums, of any shape, without gradient.
        signals: How many of several ranks have received each signal to stop.
    """

    tokens: int | Tensor = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    signals: Tensor | None = None


def seed_for(seed: int, *path: int) -> None:
    """Seed the generators of torch (every device), NumPy and Python for a micro-batch.

    The path is its number in the run, and the indices of its half, quarter, … So no random state is
    saved: a resumed run, a run on more ranks and a repeated update draw the same dropout masks.
    """
    word = int(np.random.SeedSequence([seed, len(path), *path]).generate_state(1, np.uint64)[0])
    torch.manual_seed(word)
    np.random.seed(word % 2**32)
    random.seed(word)


class Accumulator:
    """Adds up the gradients of the micro-batches of an update.

    A batch knows its ``size`` in rows, its ``positions`` (tokens with padding, which determine the
    memory) and its ``halves()``.

    Args:
        backward: Adds the gradient of one micro-batch, with random numbers that depend on its
            path, and returns its number of tokens and the sums to log.
        clear: Deletes all gradients.

    Attributes:
        alone: Whether a rank computes without the others, and may therefore repeat its part.
    """

    def __init__(
        self,
        backward: Callable[[Any, tuple[int, ...]], tuple[int, dict[str, Tensor]]],
        clear: Callable[[], None],
    ) -> None:
        self.backward, self.clear = backward, clear
        self.max_positions = float("inf")
        self.alone = True

    def __call__(
        self, update: Update[Any], sending: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> Totals:
        """Compute the gradient of the whole update.

        The backward pass of the micro-batch that completes it runs within ``sending``. If memory
        does not suffice for a micro-batch, the update starts again, and from then on batches of as
        many positions are halved: the gradients of the halves have the same sum. Raises InputError
        if memory does not suffice for a single sentence.
        """
        while True:
            numbered = zip(update.batches, update.numbers, strict=True)
            parts = [part for batch, n in numbered for part in self._fitting(batch, (n,))]
            self.clear()
            totals, too_large = self._add_up(parts, sending)
            if too_large is None:
                return totals
            self._make_room(too_large)

    def _add_up(
        self,
        parts: Sequence[tuple[Any, tuple[int, ...]]],
        sending: Callable[[], AbstractContextManager[Any]],
    ) -> tuple[Totals, Any | None]:
        """The totals, and the batch for which memory did not suffice."""
        totals = Totals()
        for index, (batch, path) in enumerate(parts, 1):
            try:
                with sending() if index == len(parts) else nullcontext():
                    tokens, sums = self.backward(batch, path)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                # The traceback holds the activations; it must be gone before the next attempt.
                return totals, batch
            totals.tokens += tokens
            for name, value in sums.items():
                totals.sums[name] = totals.sums[name] + value if name in totals.sums else value
        return totals, None

    def _fitting(self, batch: Any, path: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
        """The batch, or its parts that are small enough, each with its path."""
        if batch.positions <= self.max_positions or batch.size == 1:
            yield batch, path
            return
        for index, half in enumerate(batch.halves()):
            yield from self._fitting(half, (*path, index))

    def _make_room(self, batch: Any) -> None:
        self.clear()
        gc.collect()
        torch.cuda.empty_cache()
        size = f"{batch.size} sentence pairs, {batch.positions:,} tokens of both sides with padding"
        if not self.alone:
            raise InputError(
                f"the device runs out of memory with {size}, and ranks with sharded weights cannot "
                "halve a batch; set data.batch_tokens lower, or gradient_checkpointing=true"
            )
        if batch.size == 1:
            raise InputError(
                f"the device runs out of memory with a single sentence pair of {batch.positions} "
                "tokens; set data.max_length lower, gradient_checkpointing=true, or a smaller model"
            )
        self.max_positions = batch.positions - 1
        logger.warning(
            "out of memory with %s: such batches are halved from now on, with the same gradient; a "
            "lower data.batch_tokens spares the time",
            size,
        )
