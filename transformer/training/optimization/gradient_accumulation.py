"""The gradient of an update: micro-batch after micro-batch, then summed over the ranks once.

No rank waits for another before all its micro-batches are done. One that runs out of memory on
the way therefore splits the micro-batch and repeats its own part, and the others notice nothing.
It does not know what a batch holds, nor what the gradient is for.
"""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from transformer.common.errors import InputError, is_out_of_memory
from transformer.data.batching.loader import Update

logger = logging.getLogger(__name__)

_BUCKET = 2**24
"""Gradients sent at once: 64 MB of float32."""


@runtime_checkable
class Divisible(Protocol):
    """A batch that can be halved."""

    @property
    def size(self) -> int:
        """Rows."""

    @property
    def positions(self) -> int:
        """Tokens with padding: what memory grows with."""

    def halves(self) -> tuple["Divisible", "Divisible"]:
        """The first and the second half of the rows."""


@dataclass
class Totals:
    """Sums over the micro-batches of an update.

    Attributes:
        tokens: What the loss counts.
        sums: Losses and what else is logged, each of any shape, without gradient.
    """

    tokens: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, tokens: int, parts: dict[str, Tensor]) -> None:
        """Count a micro-batch."""
        self.tokens += tokens
        for name, value in parts.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value


@dataclass(frozen=True)
class _MicroBatch:
    """A micro-batch or a part of one, and what its random numbers are drawn from."""

    batch: Any
    path: tuple[int, ...]

    def halved(self) -> list["_MicroBatch"]:
        return [
            _MicroBatch(half, (*self.path, index)) for index, half in enumerate(self.batch.halves())
        ]


class Accumulator:
    """Adds up the gradients of the micro-batches of an update.

    Args:
        backward: Adds the gradient of one micro-batch, drawing at random by the path, and returns
            what it counts and what to log.
        clear: Forgets all gradients.

    Attributes:
        alone: Whether a rank computes without the others, and may therefore repeat itself.
    """

    def __init__(
        self,
        backward: Callable[[Any, tuple[int, ...]], tuple[int, dict[str, Tensor]]],
        clear: Callable[[], None],
    ) -> None:
        self.backward, self.clear = backward, clear
        self.most_positions = float("inf")
        self.alone = True

    def __call__(self, update: Update[Any]) -> Totals:
        """Leave the gradient of the whole update.

        Where memory does not suffice for a micro-batch the update begins again, and from then on
        none of as many positions is tried whole, but in halves: the sum of their gradients is its
        gradient.

        Raises:
            InputError: Memory does not suffice for a single row.
        """
        subwords = [
            part
            for batch, number in zip(update.batches, update.numbers, strict=True)
            for part in self._that_fit(_MicroBatch(batch, (number,)))
        ]
        while True:
            self.clear()
            totals, failed = self._pass(subwords)
            if failed is None:
                return totals
            self._make_room(subwords[failed].batch)
            subwords = [part for subword in subwords for part in self._that_fit(subword)]

    def _pass(self, subwords: Sequence[_MicroBatch]) -> tuple[Totals, int | None]:
        """The totals, and the place of the piece that memory did not suffice for."""
        totals = Totals()
        for index, subword in enumerate(subwords):
            try:
                totals.add(*self.backward(subword.batch, subword.path))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                # The traceback holds the activations: it must be gone before the next attempt.
                return totals, index
        return totals, None

    def _that_fit(self, subword: _MicroBatch) -> Iterator[_MicroBatch]:
        if subword.batch.positions <= self.most_positions or subword.batch.size == 1:
            yield subword
            return
        for half in subword.halved():
            yield from self._that_fit(half)

    def _make_room(self, batch: Divisible) -> None:
        self.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not self.alone:
            raise InputError(
                f"the device runs out of memory with {batch.size} sentence pairs, "
                f"{batch.positions:,} tokens of both sides with padding, and ranks that share out "
                "the weights cannot halve a batch; set data.batch_tokens lower, or "
                "gradient_checkpointing=true"
            )
        if batch.size == 1:
            raise InputError(
                f"the device runs out of memory with a single sentence pair of {batch.positions} "
                "tokens; set data.max_length lower, gradient_checkpointing=true, or a smaller model"
            )
        self.most_positions = batch.positions - 1
        logger.warning(
            "out of memory with %d sentence pairs, %s tokens of both sides with padding: such "
            "batches are halved from now on, with the same gradient; a lower data.batch_tokens "
            "spares the time",
            batch.size,
            f"{batch.positions:,}",
        )


def sum_over_ranks(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by the sum over all ranks; one that no rank has stays None."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    has = torch.tensor([float(p.grad is not None) for p in learning], device=learning[0].device)
    dist.all_reduce(has)
    shared = [p for p, ranks in zip(learning, has.tolist(), strict=True) if ranks]
    for parameter in shared:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    for bucket in _buckets([p.grad for p in shared if p.grad is not None]):
        flat = _flatten_dense_tensors(bucket)
        dist.all_reduce(flat)
        for gradient, total in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
            gradient.copy_(total)


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and sum(g.numel() for g in bucket) + gradient.numel() > _BUCKET:
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
