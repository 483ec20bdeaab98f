"""The interface of every search: step, limits and hypotheses; no model or text."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.common.errors import InputError
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
    """Wraps a ``StepFunction``: some tokens get ``-inf``."""

    def __init__(self, step: StepFunction, banned: Int[Tensor, " banned"]) -> None:
        self.step = step
        self.banned = banned
        self.reorder, self.keep = step.reorder, step.keep
        if isinstance(step, LookingAhead):
            self.look_ahead, self.receive = step.look_ahead, step.receive

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        return self.step(tokens).index_fill_(-1, self.banned, -math.inf)


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation in tokens."""

    tokens: tuple[int, ...]
    """Subwords, without the symbols for beginning and end."""
    score: float
    """The log-probability divided by the length penalty; searches rank by it."""
    log_probability: float
    """Natural logarithm, of the subwords and the end of the sentence."""


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
