"""The loop of every search: run a step, choose tokens, drop finished sentences.

The host reads from the device once per step, one number per sentence: whether it is done, and
whether the model gave NaN; on CUDA it has started the next step before. Hypotheses come last.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.decoding.search.interface import (
    Hypothesis,
    LogProbabilities,
    LookingAhead,
    StepFunction,
    constrain,
    not_a_number,
)
from transformer.model.attention import kv_cache
from transformer.settings.decoding import SearchConfig

LIVE, DONE, NAN = 0, 1, 2
"""State of a sentence, read by the host after a step."""

LEAVING = 16
"""On a CPU, finished sentences leave when one in this many is done."""


R = TypeVar("R", bound="Rows")


@dataclass(frozen=True)
class Rows:
    """Tensors with one row per sentence, or nested parts with these tensors."""

    def select(self: R, rows: Int[Tensor, " kept"]) -> R:
        """Only these rows."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, part in parts.items():
            whole = isinstance(part, Tensor)
            parts[name] = part.index_select(0, rows) if whole else part.select(rows)
        return replace(self, **parts)


@dataclass(frozen=True)
class Finished(Rows):
    """Finished hypotheses; the score of a free slot is ``-inf``."""

    scores: Float[Tensor, "batch beam"]
    log_probabilities: Float[Tensor, "batch beam"]
    lengths: Int[Tensor, "batch beam"]
    tokens: Int[Tensor, "batch beam longest"]


class Sentences:
    """The sentences of a batch: their limits, their rows, and which of them are still searched."""

    def __init__(self, limits: Int[Tensor, " batch"]) -> None:
        """Read the maximal subwords of each sentence, on the device of the search, once."""
        self.limits = limits
        self.host_limits: list[int] = limits.tolist()
        self.of_row = list(range(len(limits)))
        """The sentence of each row."""
        self.searched = list(self.of_row)
        """The rows of sentences that are not done."""

    @property
    def shortest(self) -> int:
        """The smallest limit of a sentence that is still searched."""
        return min(self.host_limits[self.of_row[row]] for row in self.searched)

    @property
    def longest(self) -> int:
        return max(self.host_limits)

    def end(self, outcomes: list[int]) -> list[int]:
        """Record the outcome of a step for each row; return the rows of sentences that end now."""
        ended = [row for row in self.searched if outcomes[row] != LIVE]
        self.searched = [row for row in self.searched if outcomes[row] == LIVE]
        return ended

    def leave(self) -> Int[Tensor, " kept"] | None:
        """Let sentences that are done leave; return the rows that stay, None for all."""
        size = kept_size(len(self.searched), len(self.of_row), self.limits.device)
        if size == len(self.of_row):
            return None
        done = sorted(set(range(len(self.of_row))) - set(self.searched))
        kept = sorted(self.searched + done[: size - len(self.searched)])
        searched = set(self.searched)
        self.searched = [row for row, old in enumerate(kept) if old in searched]
        self.of_row = [self.of_row[row] for row in kept]
        rows = on_device(kept, self.limits)
        self.limits = self.limits[rows]
        return rows


def kept_size(searched: int, rows: int, device: torch.device) -> int:
    """Rows to continue with: the ``searched`` sentences, and a few finished sentences.

    On a CPU, finished sentences stay until one in ``LEAVING`` is done, because removing them copies
    the rest. On other devices they stay until a quarter is done, and batch sizes are ``2^n`` and
    ``3 * 2^n``: a smaller batch saves little time, and a new shape costs time.
    """
    if not kv_cache.repeats_shapes(device):
        return searched if LEAVING * (rows - searched) >= rows else rows
    power = 2 ** (searched - 1).bit_length()
    size = next(size for size in (power // 2, 3 * power // 4, power) if size >= searched)
    return size if 4 * size <= 3 * rows else rows


def on_device(rows: list[int], like: Tensor) -> Int[Tensor, " rows"]:
    """These indices on the device of a tensor; the host does not wait for it."""
    return torch.tensor(rows).to(like.device, non_blocking=True)


@dataclass(frozen=True)
class Advanced:
    """A search after a step."""

    state: "SearchState"
    done: Bool[Tensor, " batch"]
    """Which sentences are done."""
    ranked: Float[Tensor, "batch *ranked"]
    """Log-probabilities of the chosen tokens; NaN if the step gave NaN."""
    parents: Int[Tensor, "batch beam"] | None = None
    """The hypothesis that each hypothesis continues; None is itself."""


@runtime_checkable
class SearchState(Protocol):
    """The hypotheses of all sentences of a batch."""

    @property
    def tokens(self) -> Int[Tensor, "batch beam length"]:
        """The live hypotheses; they begin with ``BOS``."""

    def advance(
        self, log_probabilities: LogProbabilities, sentences: Sentences, config: SearchConfig
    ) -> Advanced:
        """Choose the next tokens; the host reads nothing."""

    def select(self, rows: Int[Tensor, " kept"]) -> "SearchState":
        """Only these sentences."""

    def result(self, config: SearchConfig) -> Finished:
        """The result of a finished sentence."""


def reads_late(device: torch.device) -> bool:
    """Whether the host starts the next step before it reads the outcome of the last."""
    return device.type == "cuda"


class Outcomes:
    """What the host reads of each row after a step, on its way there."""

    def __init__(self, state: SearchState, flags: Int[Tensor, "batch numbers"]) -> None:
        """Begin to copy ``flags``; ``state`` is the search after the step."""
        self.state, self.flags = state, flags
        self.host = flags.to("cpu", non_blocking=True) if flags.is_cuda else flags
        self.copied = torch.cuda.Event() if flags.is_cuda else None
        if self.copied is not None:
            self.copied.record()

    def select(self, kept: Int[Tensor, " kept"]) -> "Outcomes":
        return Outcomes(self.state.select(kept), self.flags[kept])

    def read(self) -> tuple[list[int], list[list[int]]]:
        """Wait for the copy, and for nothing after it; the outcomes, and the other numbers."""
        if self.copied is not None:
            self.copied.synchronize()
        rows = self.host.tolist()
        return [outcome for outcome, *_ in rows], [numbers for _, *numbers in rows]


def run_search(
    state: SearchState, step: StepFunction, sentences: Sentences, config: SearchConfig
) -> list[list[Hypothesis]]:
    """Search until every sentence is done; return the hypotheses of each, in their order."""
    order: list[int] = []
    results: list[Finished] = []
    waiting: list[Outcomes] = []
    late = reads_late(sentences.limits.device) and not isinstance(step, LookingAhead)
    while sentences.searched:
        tokens = state.tokens
        log_probabilities = step(tokens[:, :, -1])
        constrain(log_probabilities, tokens, sentences.limits, config, sentences.shortest)
        advanced = state.advance(log_probabilities, sentences, config)
        state = advanced.state
        if advanced.parents is not None:
            step.reorder(advanced.parents)
        waiting.append(Outcomes(state, outcomes(advanced, step)))
        # There is no step beyond the longest limit.
        ahead = 1 if late and tokens.size(2) <= sentences.longest else 0
        while len(waiting) > ahead and sentences.searched:
            after = waiting.pop(0)
            read, numbers = after.read()
            if isinstance(step, LookingAhead):
                step.receive(numbers)
            if any(read[row] == NAN for row in sentences.searched):
                raise not_a_number(after.state.tokens.size(2) - 2)
            if not (ended := sentences.end(read)):
                continue
            order += [sentences.of_row[row] for row in ended]
            results.append(after.state.select(on_device(ended, tokens)).result(config))
            if sentences.searched and (kept := sentences.leave()) is not None:
                state = state.select(kept)
                step.keep(kept)
                waiting = [one.select(kept) for one in waiting]
    found = zip(order, hypotheses(results), strict=True)
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def outcomes(advanced: Advanced, step: StepFunction) -> Int[Tensor, "batch numbers"]:
    """The outcome of a step for each row, then the numbers that the step needs."""
    nan = advanced.ranked.flatten(1).isnan().any(1)
    rows = torch.where(nan, NAN, advanced.done.long())[:, None]
    if not isinstance(step, LookingAhead):
        return rows
    return torch.cat((rows, step.look_ahead(advanced.state.tokens[:, :, -1])), dim=1)


def hypotheses(results: list[Finished]) -> list[list[Hypothesis]]:
    """The finished hypotheses of each sentence, read at once."""
    longest = max(result.tokens.size(2) for result in results)
    tokens = [F.pad(r.tokens, (0, longest - r.tokens.size(2))) for r in results]
    columns = (
        torch.cat([result.scores for result in results]),
        torch.cat([result.log_probabilities for result in results]),
        torch.cat([result.lengths for result in results]),
        torch.cat(tokens),
    )
    return [
        [
            Hypothesis(tuple(tokens[:length]), score, total)
            for score, total, length, tokens in zip(*row, strict=True)
            if score > -math.inf
        ]
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
