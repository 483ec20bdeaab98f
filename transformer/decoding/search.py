"""What every search shares: its settings, the step it calls, the hypotheses it returns.

It knows neither the model behind the step nor text. A search asks a ``StepFunction`` for the
log-probabilities of the next token and tells it which hypotheses go on.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.data.tokenizer import BOS, EOS, PAD
from transformer.errors import InputError

Algorithm = Literal["beam", "greedy"]


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How to search; the values live in ``conf/decoding``.

    Attributes:
        algorithm: ``beam`` or ``greedy``.
        beam_size: Hypotheses that are followed at once, for each sentence.
        length_penalty: The exponent alpha of ``scoring.length_penalty``; larger favours longer
            hypotheses, 0 compares log-probabilities as they are.
        max_length_ratio: See ``max_length_offset``.
        max_length_offset: A hypothesis has at most ``max_length_ratio`` times the pieces of its
            source plus this many pieces; there the end of the sentence is forced.
        min_length: Pieces that a hypothesis has at least, where the upper limit leaves room.
        nbest: Hypotheses that are returned for each sentence, the best first.

    Raises:
        InputError: A value is out of its range or the values contradict each other.
    """

    algorithm: Algorithm
    beam_size: int
    length_penalty: float
    max_length_ratio: float
    max_length_offset: int
    min_length: int
    nbest: int

    def __post_init__(self) -> None:
        if self.algorithm not in ("beam", "greedy"):
            raise InputError(
                f"decoding.algorithm={self.algorithm} is unknown; choose beam or greedy"
            )
        for name in ("beam_size", "nbest"):
            if getattr(self, name) < 1:
                raise InputError(f"decoding.{name}={getattr(self, name)} must be at least 1")
        for name in ("max_length_ratio", "max_length_offset", "min_length"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"decoding.{name}={getattr(self, name)} must be at least 0")
        if not math.isfinite(self.length_penalty):
            raise InputError(f"decoding.length_penalty={self.length_penalty} must be finite")
        if self.algorithm == "greedy" and self.beam_size != 1:
            raise InputError(
                f"decoding.algorithm=greedy follows one hypothesis, not decoding.beam_size="
                f"{self.beam_size}; set decoding.algorithm=beam"
            )
        if self.nbest > self.beam_size:
            raise InputError(
                f"decoding.nbest={self.nbest} is more than decoding.beam_size={self.beam_size} "
                f"can find; set decoding.beam_size={self.nbest} or larger"
            )

    def limit(self, source_length: int) -> int:
        """Pieces that the translation of ``source_length`` pieces may have, at least one."""
        return max(1, int(self.max_length_ratio * source_length + self.max_length_offset))


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


Search = Callable[[StepFunction, Int[Tensor, " batch"], SearchConfig], list[list[Hypothesis]]]


def constrain(
    log_probabilities: Float[Tensor, "batch beam vocab"],
    length: int,
    limits: Int[Tensor, " batch"],
    min_length: int,
) -> None:
    """Rule out, in place, what may not follow hypotheses of ``length`` pieces.

    Padding and beginning never follow, the end not before ``min_length`` pieces, and nothing but
    the end once a sentence has reached its limit, however improbable it is there. What is ruled
    out becomes ``-inf``; the rest is not renormalised.
    """
    log_probabilities[..., [PAD, BOS]] = -math.inf
    full = limits <= length
    if length < min_length:
        # A sentence whose limit is below the minimum ends at its limit.
        log_probabilities[..., EOS].masked_fill_(~full[:, None], -math.inf)
    if full.any():
        least = torch.finfo(log_probabilities.dtype).min
        end = log_probabilities[full][..., EOS].clamp(min=least)
        log_probabilities.masked_fill_(full[:, None, None], -math.inf)
        log_probabilities[full, :, EOS] = end


def refuse_nan(log_probabilities: Tensor, length: int) -> None:
    """Stop a search that a broken model would lead astray.

    Raises:
        FloatingPointError: A log-probability is not a number.
    """
    if log_probabilities.isnan().any():
        raise FloatingPointError(
            f"the model gave NaN as log-probability after {length} target tokens; "
            "its weights or its precision are broken"
        )
