"""The interface of every search, and the loop of every search.

A search asks a ``StepFunction`` for the log-probabilities of the next token; it knows no model and
no text. ``run_search`` runs a step, lets the search choose tokens, and drops finished sentences.

The host reads from the device once per step, one number per sentence: whether it is done, and
whether the model gave NaN; on CUDA it has started the next step before. Hypotheses come last.
"""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.common.errors import InputError
from transformer.model.attention import kv_cache
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import BOS, EOS, PAD

LogProbabilities = Float[Tensor, "batch beam vocab"]
"""Log-probabilities of the next token: a row per sentence, a column per hypothesis."""


@runtime_checkable
class StepFunction(Protocol):
    """Log-probabilities of the next token: a row per sentence, a column per hypothesis.

    It has a state, which is empty at the start of a search. Between two calls, the search may first
    choose hypotheses to continue (``reorder``), then drop sentences (``keep``).
    """

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        """Append a token each; returns log-probabilities in float32, which may be overwritten."""

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        """Let hypothesis ``j`` of sentence ``i`` continue its hypothesis ``beams[i, j]``."""

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        """Keep only these sentences, in this order."""


@runtime_checkable
class LookingAhead(Protocol):
    """A step that needs numbers on the host; the search reads them with its own numbers."""

    def look_ahead(self, tokens: Int[Tensor, "batch beam"]) -> Int[Tensor, "batch numbers"]:
        """The numbers of each sentence to read before these tokens are appended."""

    def receive(self, numbers: list[list[int]]) -> None:
        """Take the numbers that were read."""


class BanningStep:
    """Wraps a ``StepFunction``: some tokens get ``-inf``.

    A step that looks ahead, such as one with constraints, wraps this one.
    """

    def __init__(self, step: StepFunction, banned: Int[Tensor, " banned"]) -> None:
        assert not isinstance(step, LookingAhead)
        self.step = step
        self.banned = banned
        self.reorder = step.reorder
        self.keep = step.keep

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        return self.step(tokens).index_fill_(-1, self.banned, -math.inf)


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation in tokens."""

    tokens: tuple[int, ...]
    """Subwords, without the symbols for beginning and end."""
    score: float
    """Searches rank by it: the log-probability divided by the length penalty, plus the coverage
    penalty; for ``mbr`` the expected utility."""
    log_probability: float
    """Natural logarithm, of the subwords and the end of the sentence."""
    no_speech: float | None = field(default=None, compare=False)
    """Of a sound: the probability that nobody speaks, if the model gives it."""
    prompt_length: int = field(default=0, compare=False)
    """Of a sound: so many first tokens are given, and no part of the score."""
    coverage_penalty: float = field(default=0.0, compare=False)
    """A part of the score; 0 without such a penalty."""

    @property
    def length(self) -> int:
        """The tokens that the length penalty counts: those after the prompt, and the end."""
        return len(self.tokens) - self.prompt_length + 1


def scored(hypothesis: Hypothesis, config: SearchConfig) -> Hypothesis:
    """With its log-probability over the length penalty as the score."""
    score = hypothesis.log_probability / config.penalty(hypothesis.length)
    return replace(hypothesis, score=score)


# States of a sentence, which the host reads after a step.
LIVE = 0
DONE = 1
NAN = 2

LEAVING = 16
"""On a CPU, finished sentences leave when one in this many is done."""


R = TypeVar("R", bound="Rows")


@dataclass(frozen=True)
class Rows:
    """Tensors with one row per sentence, or nested parts with these tensors."""

    def select(self: R, rows: Int[Tensor, " kept"]) -> R:
        """Only these rows."""
        selected = {}
        for member in fields(self):
            part = getattr(self, member.name)
            is_tensor = isinstance(part, Tensor)
            selected[member.name] = part.index_select(0, rows) if is_tensor else part.select(rows)
        return replace(self, **selected)


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
        self.state = state
        self.flags = flags
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
        waiting.append(Outcomes(state, outcome_numbers(advanced, step)))
        # There is no step beyond the longest limit.
        ahead = 1 if late and tokens.size(2) <= sentences.longest else 0
        while len(waiting) > ahead and sentences.searched:
            after = waiting.pop(0)
            states, numbers = after.read()
            if isinstance(step, LookingAhead):
                step.receive(numbers)
            if any(states[row] == NAN for row in sentences.searched):
                raise not_a_number(after.state.tokens.size(2) - 2)
            ended = sentences.end(states)
            if not ended:
                continue
            order += [sentences.of_row[row] for row in ended]
            results.append(after.state.select(on_device(ended, tokens)).result(config))
            kept = sentences.leave() if sentences.searched else None
            if kept is not None:
                state = state.select(kept)
                step.keep(kept)
                waiting = [outcome.select(kept) for outcome in waiting]
    by_sentence = dict(zip(order, hypotheses(results), strict=True))
    return [by_sentence[sentence] for sentence in sorted(by_sentence)]


def outcome_numbers(advanced: Advanced, step: StepFunction) -> Int[Tensor, "batch numbers"]:
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


def constrain(
    log_probabilities: LogProbabilities,
    tokens: Int[Tensor, "batch beam length"],
    limits: Int[Tensor, " batch"],
    config: SearchConfig,
    shortest: int = 0,
) -> None:
    """Ban tokens in place: set their log-probabilities to ``-inf``, without normalizing again.

    Padding and the beginning symbol are always banned. The end is banned before ``min_length``
    subwords and by ``eos_threshold``. A subword is banned if it would repeat an n-gram. At the
    limit of a sentence, everything except the end is banned. The hypotheses in ``tokens`` begin
    with ``BOS``. ``limits`` is the maximum number of subwords of each sentence; ``shortest`` is a
    lower bound of ``limits`` on the host.
    """
    length = tokens.size(2) - 1
    for symbol in (PAD, BOS):
        log_probabilities[..., symbol] = -math.inf
    # A sentence whose limit is below the minimum ends at its limit.
    end = log_probabilities[..., EOS].clamp(min=torch.finfo(log_probabilities.dtype).min)
    if config.no_repeat_ngram:
        _ban_repeated_ngrams(log_probabilities, tokens[:, :, 1:], config.no_repeat_ngram)
    if config.eos_threshold:
        _ban_doubtful_ends(log_probabilities, config.eos_threshold)
    if length < config.min_length:
        log_probabilities[..., EOS] = -math.inf
    if shortest <= length:
        full = (limits <= length)[:, None]
        log_probabilities.masked_fill_(full[..., None], -math.inf)
        log_probabilities[..., EOS] = end.where(full, log_probabilities[..., EOS])


def _ban_repeated_ngrams(
    log_probabilities: LogProbabilities, subwords: Int[Tensor, "batch beam length"], size: int
) -> None:
    """Ban subwords that would repeat an n-gram, except one that alone is left, as in a prefix."""
    if subwords.size(2) < size:
        return
    # batch beam length -> batch beam window size
    windows = subwords.unfold(2, size, 1)
    last = subwords[:, :, None, subwords.size(2) - size + 1 :]
    again = (windows[..., :-1] == last).all(-1)
    # Padding, which is banned already, stands for the windows that do not repeat.
    repeated = windows[..., -1].where(again, PAD)
    kept = log_probabilities.gather(2, repeated)
    log_probabilities.scatter_(2, repeated, -math.inf)
    stuck = log_probabilities.amax(-1, keepdim=True) == -math.inf
    log_probabilities.scatter_(2, repeated, kept.where(stuck, -math.inf))


def _ban_doubtful_ends(log_probabilities: LogProbabilities, threshold: float) -> None:
    end = log_probabilities[..., EOS].clone()
    log_probabilities[..., EOS] = -math.inf
    best = log_probabilities.amax(-1)
    # The end stays allowed if nothing else is.
    doubtful = (end <= threshold * best) & (best > -math.inf)
    log_probabilities[..., EOS] = end.masked_fill(doubtful, -math.inf)


def not_a_number(length: int) -> InputError:
    """The error of a step that gives NaN: damaged weights, or too low a precision."""
    return InputError(
        f"the model gave NaN as log-probability after {length} target tokens; use another "
        "checkpoint, or precision=float32"
    )
