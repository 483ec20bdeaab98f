"""What a process does when memory runs out: alone it halves the batches that are too large."""

import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch

from transformer.common.errors import InputError, is_out_of_memory

logger = logging.getLogger(__name__)


def runs_out_of_memory(compute: Callable[[], object]) -> bool:
    """Whether a computation runs out of memory; then its traceback and activations are gone."""
    try:
        compute()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return True
    return False


def free_memory() -> None:
    """Return unused memory to the device."""
    gc.collect()
    torch.cuda.empty_cache()


class BatchHalving:
    """Halves batches of as many positions as one that was too large, unless other ranks wait."""

    def __init__(self) -> None:
        self.max_positions = float("inf")
        self.alone = True

    def parts(self, batch: Any, path: tuple[int, ...]) -> Iterator[tuple[Any, tuple[int, ...]]]:
        """The batch, or its parts that are small enough, each with its path."""
        if batch.positions <= self.max_positions or batch.size == 1:
            yield batch, path
            return
        for index, half in enumerate(batch.halves()):
            yield from self.parts(half, (*path, index))

    def make_room(self, batch: Any) -> None:
        """Halve such batches from now on; raises InputError if this one cannot be halved."""
        free_memory()
        pairs = "a single sentence pair" if batch.size == 1 else f"{batch.size} sentence pairs"
        size = f"{pairs}, {batch.positions:,} tokens of both sides with padding"
        if not self.alone or batch.size == 1:
            reason = "" if self.alone else ", and one of several ranks cannot halve its batch"
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
