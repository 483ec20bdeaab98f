"""Sums gradients over the ranks in buckets, sent while the backward pass still runs.

Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

_BUCKET = 2**23
"""Weights of a bucket: 32 MB of float32."""


class GradientBuckets:
    """The gradients of the parameters that learn, in buckets that are sent in a fixed order.

    The last parameters come first, about as in the backward pass. A bucket is sent when all its
    gradients are complete. If a rank then runs out of memory, it repeats its part alone and sends
    only the rest. With ``bfloat16``, the ranks send and sum in bfloat16.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, bfloat16: bool = False) -> None:
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        self._buckets = list(_buckets(learning[::-1]))
        self._bfloat16 = bfloat16
        # Gradients of each bucket that are not complete; None outside of the last backward pass.
        self._missing: list[int] | None = None
        self._sent: list[tuple[Tensor, dist.Work | None]] = []
        self._has: list[bool] = []
        for index, bucket in enumerate(self._buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(partial(self._complete, index))

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send every bucket; the backward pass within completes the gradients."""
        self._missing = [len(bucket) for bucket in self._buckets]
        try:
            yield
            while len(self._sent) < len(self._buckets):
                self._send()
        finally:
            self._missing = None

    def finish(self) -> list[bool]:
        """Replace the gradients by their sums; returns which gradients this rank had."""
        for bucket in self._buckets:
            # Each copy is freed before the next is unpacked.
            flat, work = self._sent.pop(0)
            if work is not None:
                work.wait()
            sums = _unflatten_dense_tensors(flat.to(bucket[0].dtype), bucket)
            for parameter, total in zip(bucket, sums, strict=True):
                parameter.grad = total
        has, self._has = self._has, []
        return has

    def drop(self, ranks: Sequence[float]) -> None:
        """Delete each gradient that no rank has, given the number of ranks that have it."""
        parameters = (parameter for bucket in self._buckets for parameter in bucket)
        for parameter, number in zip(parameters, ranks, strict=True):
            if not number:
                parameter.grad = None

    def _complete(self, index: int, parameter: Tensor) -> None:
        if self._missing is None:
            return
        self._missing[index] -= 1
        while len(self._sent) < len(self._buckets) and not self._missing[len(self._sent)]:
            self._send()

    def _send(self) -> None:
        bucket = self._buckets[len(self._sent)]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = _flatten_dense_tensors(gradients)
        flat = flat.bfloat16() if self._bfloat16 else flat
        self._sent.append((flat, dist.all_reduce(flat, async_op=True)))
        self._has += [parameter.grad is not None for parameter in bucket]
        for parameter in bucket:
            # The flat copy takes their room.
            parameter.grad = None


def _buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Consecutive parameters of one dtype and at most ``_BUCKET`` weights together."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        full = sum(p.numel() for p in bucket) + parameter.numel() > _BUCKET
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
