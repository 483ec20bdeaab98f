"""Rows of ``python -m benchmarks.gpu`` that explain every millisecond of an update and a search.

torch's profiler records the kernels; kernels.py groups them. On a CPU the outermost operators take
the place of kernels. ``FOLDER/kernels-NAME.jsonl`` has all kernels of a trace by name.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.kernels import SCOPES, Kernel, by_name, summary
from benchmarks.gpu.measure import TOKENS, Bench, Values, elapsed
from benchmarks.gpu.models import built, made_batches
from benchmarks.gpu.searches import BATCH_TOKENS, SOURCES
from benchmarks.gpu.updates import Update, with_shape
from benchmarks.support.engines import Ours
from transformer.settings.decoding import SearchConfig

LAUNCHES = ("Launch", "Memcpy", "Memset")
"""Parts of the names of calls by which the host starts kernels, graphs, copies and fills."""
UPDATES = 3
STEPS = 10
"""Of a search; every hypothesis has so many subwords."""


def update(bench: Bench, model: str, *, compiled: bool = False, graphs: bool = False) -> Values:
    """Three updates of a preset: kernels by group, and gaps between them."""
    step = Update(bench, model, compiled=compiled, graphs=graphs)
    made = made_batches(bench, bench.of(TOKENS), UPDATES)
    batches = [(with_shape(each) if graphs else each).to(bench.device) for each in made]

    def all_of_them() -> None:
        for batch in batches:
            step(batch)

    name = f"update-{model}-{'compiled' if compiled else 'eager'}{'-graphs' * graphs}"
    return traced(bench, name, all_of_them, UPDATES)


def search(bench: Bench, sentences: int, *, graphs: bool = False) -> Values:
    """Ten steps of a beam search in bfloat16, with the encoder before the first."""
    config = SearchConfig(
        cuda_graphs=graphs,
        length_penalty_form="average",
        min_length=STEPS,
        max_length_ratio=0.0,
        max_length_offset=STEPS,
    )
    translate = Ours(built(bench, "base").eval(), "bfloat16", config)
    random = np.random.default_rng(1)
    lengths = random.integers(*SOURCES, bench.of(sentences), endpoint=True)
    sources = [random.integers(4, bench.vocabulary, length).tolist() for length in lengths]
    name = f"search-{sentences}{'-graphs' * graphs}"
    return traced(bench, name, lambda: translate(sources, BATCH_TOKENS), STEPS)


def traced(bench: Bench, name: str, call: Callable[[], object], times: int) -> Values:
    """The kernels of the fourth call, as ``summary`` gives them for ``times``.

    The profiler slows down the host, so the third call tells how long one takes without it.
    """
    for _ in range(2):  # the second records graphs
        call()
        bench.check()
    untraced = elapsed(bench.device, call)
    activities = [ProfilerActivity.CPU]
    if bench.on_gpu:
        activities.append(ProfilerActivity.CUDA)
        torch.cuda.synchronize(bench.device)
    with profile(activities=activities) as watched:
        call()
        if bench.on_gpu:
            torch.cuda.synchronize(bench.device)
    kernels = list(kernels_of(watched.events() or ()))
    lines = (json.dumps(line, ensure_ascii=False) for line in by_name(kernels))
    text = "".join(f"{line}\n" for line in lines)
    (bench.folder / f"kernels-{name}.jsonl").write_text(text, encoding="utf-8")
    return {"ms, not traced": untraced / times, **summary(kernels, times)}


def kernels_of(events: Iterable[Any]) -> Iterator[Kernel]:
    """The kernels, copies and fills that a profiler has recorded on a GPU, or else on the CPU."""
    events = list(events)
    on_host = [event for event in events if event.device_type == DeviceType.CPU]
    on_gpu = [
        event
        for event in events
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation
    ]
    scopes = Scopes(on_host)
    if not on_gpu:
        for event in on_host:
            if _is_operator(event) and not _has_operator_above(event):
                start, end = event.time_range.start, event.time_range.end
                yield Kernel(event.name, start, end, scope=scopes.at(start))
        return
    # A call of the CUDA runtime and the kernel that it launches have the same number.
    launches = {event.id: event.time_range.start for event in on_host if _is_launch(event)}
    for event in on_gpu:
        launched = launches.get(event.id)
        scope = None if launched is None else scopes.at(launched)
        yield Kernel(event.name, event.time_range.start, event.time_range.end, launched, scope)


class Scopes:
    """The blocks of ``SCOPES`` in a trace of the host, which do not overlap."""

    def __init__(self, on_host: Iterable[Any]) -> None:
        blocks = [
            (event.time_range.start, event.time_range.end, group)
            for event in on_host
            for group, beginning in SCOPES
            if event.name.startswith(beginning)
        ]
        self._blocks = sorted(blocks)
        self._starts = [start for start, _, _ in self._blocks]

    def at(self, time: float) -> str | None:
        """The group of the block at a time; None outside of all."""
        index = bisect_right(self._starts, time) - 1
        if index < 0:
            return None
        _, end, group = self._blocks[index]
        return group if time < end else None


def _is_operator(event: Any) -> bool:
    return bool(event.name.startswith("aten::"))


def _has_operator_above(event: Any) -> bool:
    above = event.cpu_parent
    while above is not None:
        if _is_operator(above):
            return True
        above = above.cpu_parent
    return False


def _is_launch(event: Any) -> bool:
    """Whether a call of the CUDA runtime or driver starts work on the device."""
    return event.name.startswith("cu") and any(part in event.name for part in LAUNCHES)
