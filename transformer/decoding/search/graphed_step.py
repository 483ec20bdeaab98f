"""The step of a search by CUDA graphs: the host starts a decoder position by one call.

A graph reads and writes tensors that stay where they are, so each number of sentences and each room
of the cache has its own. The source and the first position are computed without a graph, and the
search chooses tokens without one. Nothing here knows the search.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from transformer.common.cuda_graphs import GpuRecorder, Recorder, failure
from transformer.common.errors import is_out_of_memory
from transformer.decoding.search.model_step import (
    Ensemble,
    EnsembleStep,
    Model,
    ModelStep,
    ensemble_members,
)
from transformer.decoding.search.search import LogProbabilities, StepFunction
from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kv_cache import (
    DecoderCache,
    FixedDecoderCache,
    FixedLayerCache,
    LayerCache,
    block_of,
    room_for,
)
from transformer.model.attention.masks import Source
from transformer.model.positions.absolute import SinusoidalPositions
from transformer.model.transformer import Transformer

logger = logging.getLogger(__name__)

MOST_GRAPHS = 512
"""Graphs of a model that are kept; before one more, all are forgotten."""


class StepShape(NamedTuple):
    """What tells the graphs of two steps apart; the room is of keys and values, 0 without them."""

    sentences: int
    beam: int
    room: int
    source: int
    dtype: torch.dtype

    @property
    def rows(self) -> int:
        """Hypotheses of all sentences."""
        return self.sentences * self.beam


def few_sizes(size: int) -> int:
    """The next of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, …: four between powers of two."""
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step


class FixedTensors:
    """Tensors that the steps of all shapes share, because one is computed at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.outgrown = False
        """Whether a larger tensor has taken the place of one that earlier steps use."""
        self._flat: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor of this name, with what the last step of any shape left there."""
        size = torch.Size(shape).numel()
        flat = self._flat.get((name, dtype))
        if flat is None or len(flat) < size:
            self.outgrown = self.outgrown or flat is not None
            # Not all searches that write to it are in inference mode.
            with torch.inference_mode(False):
                flat = torch.zeros(size, dtype=dtype, device=self.device)
            self._flat[name, dtype] = flat
        return flat[:size].view(*shape)


class FixedStep:
    """A decoder position of a batch of some shape, in tensors that stay where they are.

    Keys and values have two sides: where hypotheses change places, a position reads one side and
    writes the other. A batch may have fewer sentences than the shape; the rest is computed, too.
    """

    def __init__(
        self, model: Transformer, shape: StepShape, tensors: FixedTensors, like: DecoderCache
    ) -> None:
        """Take the tensors; ``like`` is a cache with the heads of the model."""
        self.model = model
        self.shape = shape
        self.graphs: dict[tuple[int, bool], Callable[[], None]] = {}
        """By the side that is written, and whether hypotheses change places."""
        self.computed: set[tuple[int, bool]] = set()
        """What has been computed without a graph."""
        self._tensors = tensors
        self.tokens = tensors.take("tokens", (shape.rows, 1), torch.long)
        self.position = tensors.take("position", (1,), torch.long)
        self.rows = tensors.take("rows", (shape.rows,), torch.long)
        self.mask = tensors.take("mask", (shape.sentences, 1, 1, shape.source), torch.bool)
        vocabulary = model.projection.out_features
        self.log_probabilities = tensors.take(
            "log_probabilities", (shape.rows, vocabulary), torch.float32
        )
        self._sides = [[self._layer(n, 0, layer) for n, layer in enumerate(like.layers)]]

    def side(self, number: int) -> list[LayerCache]:
        """The caches of all layers; greedy search needs only one side of them."""
        if number == len(self._sides):
            first = enumerate(self._sides[0])
            self._sides.append([self._layer(n, number, layer) for n, layer in first])
        return self._sides[number]

    def load(self, cache: DecoderCache) -> None:
        """Copy a cache, whose hypotheses change places now, to the first side."""
        sentences = len(cache.layers[0].cross_keys)
        for fixed, layer in zip(self.side(0), cache.layers, strict=True):
            _fill(fixed.cross_keys, layer.cross_keys)
            _fill(fixed.cross_values, layer.cross_values)
            if layer.keys is not None and layer.values is not None:
                _fill(fixed.keys, layer.selected(layer.keys, self.shape.room))
                _fill(fixed.values, layer.selected(layer.values, self.shape.room))
            else:
                _fill(fixed.state, layer.continued_state())
        mask = cache.source_context.mask
        assert mask is not None
        if mask.data_ptr() != self.mask.data_ptr():
            # Sentences beyond the batch see their zeros.
            self.mask.fill_(True)
            self.mask[:sentences] = F.pad(mask, (0, self.shape.source - mask.size(-1)))
        torch.arange(self.shape.rows, out=self.rows)

    def compute(self, side: int, reorders: bool) -> None:
        """Append the tokens to a side, after its own positions or those of the other side."""
        written = self.side(side)
        read = self.side(1 - side) if reorders else [None] * len(written)
        layers: list[LayerCache] = [
            FixedLayerCache(
                layer.cross_keys,
                layer.cross_values,
                layer.keys,
                layer.values,
                rows=self.rows,
                state=layer.state,
                position=self.position,
                before=before,
            )
            for layer, before in zip(written, read, strict=True)
        ]
        context = AttentionContext(self.mask)
        cache = FixedDecoderCache(layers, context, position=self.position, room=self.shape.room)
        logits = self.model.logits(self.model.decode_next(self.tokens, cache)[:, -1]).float()
        torch.log_softmax(logits, dim=-1, out=self.log_probabilities)

    def cache(self, side: int, sentences: int, length: int) -> DecoderCache:
        """The first sentences of a side as the cache of a search."""
        rows = sentences * self.shape.beam
        layers = [
            LayerCache(
                layer.cross_keys[:sentences],
                layer.cross_values[:sentences],
                None if layer.keys is None else layer.keys[:rows],
                None if layer.values is None else layer.values[:rows],
                length,
                state=None if layer.state is None else layer.state[:rows],
            )
            for layer in self.side(side)
        ]
        return DecoderCache(layers, AttentionContext(self.mask[:sentences]), length)

    def _layer(self, number: int, side: int, like: LayerCache) -> LayerCache:
        def take(name: str, sizes: dict[int, int], suffix: str = "") -> Any:
            tensor: Tensor | None = getattr(like, name)
            if tensor is None:
                return None
            shape = [sizes.get(axis, size) for axis, size in enumerate(tensor.shape)]
            return self._tensors.take(f"{number} {name}{suffix}", shape, tensor.dtype)

        source_sizes = {0: self.shape.sentences, 2: self.shape.source}
        target_sizes = {0: self.shape.rows, 2: self.shape.room}
        return LayerCache(
            take("cross_keys", source_sizes),
            take("cross_values", source_sizes),
            take("keys", target_sizes, f" {side}"),
            take("values", target_sizes, f" {side}"),
            state=take("state", target_sizes, f" {side}"),
        )


class StepGraphs:
    """The graphs of a model: a position is recorded when its shape is met again, then replayed.

    If a recording fails, no graph is used from then on, and a line of the log says why.
    """

    def __init__(self, model: Transformer, recorder: Recorder) -> None:
        self.model = model
        self.works = True
        """False after a recording that has failed."""
        self.replayed = 0
        """Positions that were computed by a graph."""
        self.lock = threading.Lock()
        """Held by a search from its first position to its last."""
        self._recorder = recorder
        self._addresses: dict[str, int] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all graphs, and free their memory."""
        self._steps: dict[StepShape, FixedStep] = {}
        self._tensors = FixedTensors(next(self.model.parameters()).device)
        self._graphs = 0

    def forget_moved_weights(self) -> None:
        """Forget all graphs if weights, or masks of heads, are not where they were."""
        weights = chain(self.model.named_parameters(), self.model.named_buffers())
        # By name: a mask may lie where that of another attention was.
        addresses = {name: weight.data_ptr() for name, weight in weights}
        if addresses != self._addresses:
            self._addresses = addresses
            self.clear()

    def step(self, shape: StepShape, cache: DecoderCache) -> FixedStep:
        """The step of a shape; ``cache`` is one of the model."""
        if shape not in self._steps:
            self._steps[shape] = FixedStep(self.model, shape, self._tensors, cache)
        return self._steps[shape]

    def run(self, step: FixedStep, side: int, reorders: bool) -> None:
        """Compute ``step``, by its graph if it has one."""
        step.side(side)
        if self._tensors.outgrown or self._graphs >= MOST_GRAPHS:
            # What other steps use would stay in memory beside its larger successor.
            self._steps = {step.shape: step}
            self._graphs = len(step.graphs)
            self._tensors.outgrown = False
        compute = partial(step.compute, side, reorders)
        kind = side, reorders
        if self.works and kind not in step.computed:
            self._recorder.warm_up(compute)
            step.computed.add(kind)
            return
        if self.works and kind not in step.graphs:
            self._record(step, kind, compute)
        if self.works:
            step.graphs[kind]()
            self.replayed += 1
        else:
            compute()

    def _record(self, step: FixedStep, kind: tuple[int, bool], compute: Callable[[], None]) -> None:
        try:
            _, step.graphs[kind] = self._recorder.record(compute)
            self._graphs += 1
        except RuntimeError as error:
            self.clear()
            if is_out_of_memory(error):
                # A smaller batch may have a graph.
                raise
            self.works = False
            logger.warning(
                "decoding.cuda_graphs: no graph from now on, because recording one failed (%s)",
                failure(error),
            )


class GraphedStep(ModelStep):
    """``ModelStep`` with the graphs of its model."""

    def __init__(self, graphs: StepGraphs, source: Source, beam: int) -> None:
        super().__init__(graphs.model, source, beam)
        graphs.forget_moved_weights()
        self.graphs = graphs
        self.step: FixedStep | None = None
        """Where the cache lies; None if it lies elsewhere."""
        self.side = 0

    @torch.no_grad()
    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        if not self.cache.length:
            return super().__call__(tokens)
        sentences, rows = len(tokens), tokens.numel()
        step = self.graphs.step(self._shape(sentences), self.cache)
        changed_places = self.cache.layers[0].rows
        reorders = step is self.step and changed_places is not None
        if step is not self.step:
            step.load(self.cache)
            self.step = step
            self.side = 0
        elif changed_places is not None:
            step.rows[:rows] = changed_places
            self.side = 1 - self.side
        # batch beam -> (batch beam) 1
        step.tokens[:rows] = tokens.reshape(-1, 1)
        step.position.fill_(self.cache.length)
        self.graphs.run(step, self.side, reorders)
        self.cache = step.cache(self.side, sentences, self.cache.length + 1)
        # (batch beam) vocab -> batch beam vocab
        return step.log_probabilities[:rows].unflatten(0, tokens.shape)

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        super().keep(sentences)
        self.step = None

    def _shape(self, sentences: int) -> StepShape:
        first = self.cache.layers[0]
        cross_keys = first.cross_keys
        # A state has no room that grows.
        room = 0 if first.keys is None else room_for(self.cache.length, 1, cross_keys.device)
        block = block_of(cross_keys.device)
        return StepShape(
            few_sizes(sentences),
            self.beam,
            room,
            -(-cross_keys.size(2) // block) * block,
            cross_keys.dtype,
        )


def build_graphed_step(
    model: Model, source: Source, beam: int, graphs: Sequence[StepGraphs]
) -> StepFunction:
    """``build_step`` with the graphs of each model."""
    steps = [GraphedStep(member_graphs, source, beam) for member_graphs in graphs]
    return EnsembleStep(model, steps) if isinstance(model, Ensemble) else steps[0]


def graphless_reason(model: Transformer, device: torch.device) -> str | None:
    """Why the steps of a model cannot be recorded; None if they can."""
    if device.type != "cuda":
        return f"the model is on device={device.type}, not on a CUDA GPU"
    layer = model.config.decoder_layer
    if layer is not None and ":" in layer:
        return f"model.decoder_layer={layer} may have a cache of its own"
    positions = model.target_embedding.positions
    longest = model.config.max_length
    if isinstance(positions, SinusoidalPositions) and len(positions.table) < longest:
        return f"model.max_length={longest} is more than {len(positions.table)} positions"
    return None


def step_graphs(model: Model, device: torch.device) -> list[StepGraphs]:
    """Graphs of each model of an ensemble; if one cannot have any, none, and a line of the log."""
    members = ensemble_members(model)
    for member in members:
        reason = graphless_reason(member, device)
        if reason is not None:
            warn_once(f"decoding.cuda_graphs: no graph is used, because {reason}")
            return []
    return [StepGraphs(member, GpuRecorder(device)) for member in members]


@cache
def warn_once(line: str) -> None:
    """Log a line that is true of many translators of a process, such as one for each validation."""
    logger.warning(line)


def _fill(fixed: Tensor | None, value: Tensor | None) -> None:
    """Copy to the beginning of each axis, unless it lies there already; the rest is 0.

    What a mask hides must be finite, too.
    """
    assert fixed is not None and value is not None
    if fixed.data_ptr() == value.data_ptr():
        return
    fixed.zero_()
    fixed[tuple(slice(size) for size in value.shape)] = value
