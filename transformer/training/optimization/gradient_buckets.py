"""Sums gradients during the backward pass (Li et al. 2020, section 3.2)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

_BUCKET_WEIGHTS = 2**23
"""Maximum number of weights in a bucket: 32 MB of float32."""


class GradientBuckets:
    """Gradients of the trainable parameters, in buckets that all ranks send in the same order.

    The order starts at the last parameter, as the backward pass does. A bucket is sent as soon as
    all its gradients are complete. A rank that then runs out of memory repeats its part of the
    batch alone, and sends only the buckets that it has not sent.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        self._buckets = list(_buckets(learning[::-1]))
        # Number of incomplete gradients of each bucket; None outside ``sending``.
        self._missing: list[int] | None = None
        # Flat gradients of each bucket, and the sum over the ranks that still runs.
        self._sent: list[tuple[Tensor, dist.Work | None]] = []
        # Whether this rank had a gradient of each parameter, in the order of sending.
        self._present: list[bool] = []
        for index, bucket in enumerate(self._buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(partial(self._complete, index))

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send each bucket that a backward pass in this block completes, and others at its end."""
        self._missing = [len(bucket) for bucket in self._buckets]
        try:
            yield
            while len(self._sent) < len(self._buckets):
                self._send()
        finally:
            self._missing = None

    def finish(self) -> list[bool]:
        """Wait for the sums, store them as gradients; return whether this rank had each."""
        for bucket in self._buckets:
            flat, work = self._sent.pop(0)
            if work is not None:
                work.wait()
            sums = _unflatten_dense_tensors(flat, bucket)
            for parameter, total in zip(bucket, sums, strict=True):
                parameter.grad = total
        present, self._present = self._present, []
        return present

    def drop(self, ranks: Sequence[float]) -> None:
        """Set gradients to None that no rank had; ``ranks`` has how many had each, as sent."""
        parameters = (parameter for bucket in self._buckets for parameter in bucket)
        for parameter, number in zip(parameters, ranks, strict=True):
            if number == 0:
                parameter.grad = None

    def _complete(self, index: int, parameter: Tensor) -> None:
        """Count a gradient as complete; send the next buckets if they are complete."""
        if self._missing is None:
            return
        self._missing[index] -= 1
        while len(self._sent) < len(self._buckets) and not self._missing[len(self._sent)]:
            self._send()

    def _send(self) -> None:
        """Start the sum of the next bucket; a missing gradient counts as zeros."""
        bucket = self._buckets[len(self._sent)]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = _flatten_dense_tensors(gradients)
        self._sent.append((flat, dist.all_reduce(flat, async_op=True)))
        self._present += [parameter.grad is not None for parameter in bucket]
        for parameter in bucket:
            # Frees its memory: the flat copy has the values.
            parameter.grad = None


def _buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Consecutive parameters of one dtype, ``_BUCKET_WEIGHTS`` weights or a single parameter."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        full = sum(p.numel() for p in bucket) + parameter.numel() > _BUCKET_WEIGHTS
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
