"""What every search shares: the step it calls, what may follow, the hypotheses it returns.

It knows neither the model behind the step nor text. A search asks a ``StepFunction`` for the
log-probabilities of the next token and tells it which hypotheses go on.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import BOS, EOS, PAD
from transformer.decoding.search.config import SearchConfig


@runtime_checkable
class StepFunction(Protocol):
    """Log-probabilities of the next token, one sentence a row and one hypothesis a column.

    It remembers what it was given. Between two calls the search may first drop sentences
    (``keep``), then let hypotheses branch and die (``reorder``).
    """

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam vocab"]:
        """Append one token to each hypothesis; return what may follow.

        The values are float32 log-probabilities in memory that the search may overwrite.
        """
        ...

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        """Let hypothesis ``j`` of sentence ``i`` go on from its hypothesis ``beams[i, j]``."""
        ...

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        """Forget all sentences but these, which move up in this order."""
        ...


class StepWithout:
    """A ``StepFunction`` over another one, after which some tokens never follow."""

    def __init__(self, step: StepFunction, never: Int[Tensor, " ruled_out"]) -> None:
        """Begin before the first token; what is ruled out becomes ``-inf``."""
        self.step = step
        self.never = never
        self.reorder, self.keep = step.reorder, step.keep

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam vocab"]:
        """Append one token to each hypothesis; return what may follow."""
        log_probabilities = self.step(tokens)
        log_probabilities[..., self.never] = -math.inf
        return log_probabilities


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation in tokens.

    Attributes:
        tokens: Pieces, without the symbols for beginning and end.
        score: The log-probability divided by the length penalty; searches rank by it.
        log_probability: Natural logarithm, of the pieces and the end of the sentence.
    """

    tokens: tuple[int, ...]
    score: float
    log_probability: float


def constrain(
    log_probabilities: Float[Tensor, "batch beam vocab"],
    tokens: Int[Tensor, "batch beam length"],
    limits: Int[Tensor, " batch"],
    config: SearchConfig,
) -> None:
    """Rule out, in place, what may not follow these hypotheses, which begin with ``BOS``.

    Padding and beginning never follow, the end not before ``min_length`` pieces nor where
    ``eos_threshold`` forbids it, no piece that would repeat an n-gram, and nothing but the end once
    a sentence has reached its limit, however improbable it is there. What is ruled out becomes
    ``-inf``; the rest is not renormalised.
    """
    length = tokens.size(2) - 1
    log_probabilities[..., [PAD, BOS]] = -math.inf
    full = limits <= length
    # A sentence whose limit is below the minimum ends at its limit.
    end = log_probabilities[..., EOS].clamp(min=torch.finfo(log_probabilities.dtype).min)
    if config.no_repeat_ngram:
        _rule_out_repetition(log_probabilities, tokens[:, :, 1:], config.no_repeat_ngram)
    if config.eos_threshold:
        _rule_out_doubtful_ends(log_probabilities, config.eos_threshold)
    if length < config.min_length:
        log_probabilities[..., EOS] = -math.inf
    if full.any():
        log_probabilities.masked_fill_(full[:, None, None], -math.inf)
        log_probabilities[full, :, EOS] = end[full]


def _rule_out_repetition(
    log_probabilities: Float[Tensor, "batch beam vocab"],
    subwords: Int[Tensor, "batch beam length"],
    size: int,
) -> None:
    """No piece that followed the last ``size - 1`` pieces before follows them again.

    Where nothing else may follow, as within a forced prefix, it may.
    """
    if subwords.size(2) < size:
        return
    # batch beam length -> batch beam window size
    windows = subwords.unfold(2, size, 1)
    last = subwords[:, :, None, subwords.size(2) - size + 1 :]
    again = (windows[..., :-1] == last).all(-1)
    sentence, hypothesis, _ = rows = again.nonzero(as_tuple=True)
    repeated = windows[..., -1][rows]
    kept = log_probabilities[sentence, hypothesis, repeated]
    log_probabilities[sentence, hypothesis, repeated] = -math.inf
    stuck = (log_probabilities[sentence, hypothesis] == -math.inf).all(-1)
    log_probabilities[sentence[stuck], hypothesis[stuck], repeated[stuck]] = kept[stuck]


def _rule_out_doubtful_ends(
    log_probabilities: Float[Tensor, "batch beam vocab"], threshold: float
) -> None:
    end = log_probabilities[..., EOS].clone()
    log_probabilities[..., EOS] = -math.inf
    best = log_probabilities.amax(-1)
    # Where nothing else may follow, the end may.
    doubtful = (end <= threshold * best) & (best > -math.inf)
    log_probabilities[..., EOS] = end.masked_fill(doubtful, -math.inf)


class NotANumber(InputError):
    """A model computes NaN: its weights are damaged, or too large for its precision."""


def check_no_nan(log_probabilities: Tensor, length: int) -> None:
    """Stop a search that a broken model would lead astray.

    Raises:
        NotANumber: A log-probability is none.
    """
    if log_probabilities.isnan().any():
        raise NotANumber(
            f"the model gave NaN as log-probability after {length} target tokens; use another "
            "checkpoint, or precision=float32"
        )
