"""Sums over the ranks, of an update and of a validation; the host reads an update's sums later."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from transformer.common.processes import SIGNALS
from transformer.training.step.gradient_accumulation import Totals


class FlatTensors:
    """Named tensors in one flat tensor, ``flat``, which one copy or one sum over ranks moves."""

    def __init__(self, *groups: Mapping[str, Tensor]) -> None:
        self._shapes = [{name: value.shape for name, value in group.items()} for group in groups]
        values = [value for group in groups for value in group.values()]
        self.flat = torch.cat([value.detach().flatten() for value in values])

    def unpack(self) -> list[dict[str, Tensor]]:
        sizes = [shape.numel() for group in self._shapes for shape in group.values()]
        parts = iter(self.flat.split(sizes))
        return [
            {name: next(parts).view(shape) for name, shape in group.items()}
            for group in self._shapes
        ]


def sum_over_ranks(totals: Totals, signal: int | None, device: torch.device) -> Totals:
    """Sum the totals of an update over the ranks, and collect the signals, by one message."""
    signals = [signal == one for one in SIGNALS]
    counts = {"tokens": totals.tokens, "signals": signals}
    on_host = {name: torch.tensor(count, dtype=torch.float64) for name, count in counts.items()}
    counted = FlatTensors(on_host)
    counted.flat = counted.flat.to(device, non_blocking=True)
    # The ranks may have met the sums in another order.
    packed = FlatTensors(*counted.unpack(), dict(sorted(totals.sums.items())))
    dist.all_reduce(packed.flat)
    summed, sums = packed.unpack()
    return Totals(summed["tokens"], sums, summed["signals"])


class UpdateNumbers(NamedTuple):
    """The outcome of an update on the host, over all ranks.

    ``good``: whether the update was applied. ``norm``: norm of the gradient before clipping.
    ``loss``: loss per prediction, in nats. ``signal``: the last signal in the list that any of
    several ranks has received. ``sums``: plain numbers and lists to log, by name.
    """

    good: bool
    norm: float
    tokens: int
    loss: float
    signal: int | None
    sums: dict[str, Any]


class Outcome:
    """Numbers of update ``number``, from 1, on the device; a copy to the host starts at once."""

    def __init__(self, good: Tensor, norm: Tensor, totals: Totals, lr: float, number: int) -> None:
        self.applied, self.lr, self.number = good, lr, number
        self._tokens = totals.tokens
        numbers = {"good": good, "norm": norm}
        if isinstance(totals.tokens, Tensor) and totals.signals is not None:
            numbers |= {"tokens": totals.tokens, "signals": totals.signals}
        self._packed = FlatTensors(numbers, totals.sums)
        self._copied: torch.cuda.Event | None = None
        if self._packed.flat.is_cuda:
            self._packed.flat = self._packed.flat.to("cpu", non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    @cached_property
    def numbers(self) -> UpdateNumbers:
        """The numbers on the host: the only read of the device in an update."""
        if self._copied is not None:
            self._copied.synchronize()
        self._packed.flat = self._packed.flat.cpu()
        groups: list[dict[str, Any]] = [
            {name: value.tolist() for name, value in group.items()}
            for group in self._packed.unpack()
        ]
        counts, sums = groups
        tokens = int(counts.get("tokens", self._tokens))
        signals = counts.get("signals", [0] * len(SIGNALS))
        received = [signal for signal, ranks in zip(SIGNALS, signals, strict=True) if ranks]
        signal = received[-1] if received else None
        good, norm = bool(counts["good"]), counts["norm"]
        return UpdateNumbers(good, norm, tokens, sums["loss"] / tokens, signal, sums)


class Means:
    """Means over all predictions of a validation; Lightning would average those of the ranks."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, list[Tensor]] = defaultdict(list)
        self._numbers: Counter[str] = Counter()

    def add(self, name: str, summed: Tensor, number: int) -> None:
        """Count a sum over ``number`` predictions, which the host does not read yet."""
        self._sums[name].append(summed.detach())
        self._numbers[name] += number

    def over_all_ranks(self) -> dict[str, float]:
        """The means of all names counted by any rank, equal on all ranks; resets them."""
        own = {
            name: (math.fsum(torch.stack(sums).tolist()), self._numbers[name])
            for name, sums in self._sums.items()
        }
        ranks = [own]
        if dist.is_initialized():
            ranks *= dist.get_world_size()
            dist.all_gather_object(ranks, own)
        self._sums.clear()
        self._numbers.clear()
        means = {}
        for name in dict.fromkeys(name for counted in ranks for name in counted):
            parts = [counted[name] for counted in ranks if name in counted]
            means[name] = math.fsum(part[0] for part in parts) / sum(part[1] for part in parts)
        return means
