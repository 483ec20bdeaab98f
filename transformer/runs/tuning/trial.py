"""Trials of weights and search on a text: their grid and the best one; files are not known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformer.decoding.search.config import NEUTRAL, SearchConfig
from transformer.evaluation.metrics import DECIMALS, Score


@dataclass(frozen=True)
class Trial:
    """Result of one trial.

    Attributes:
        weights: Name of the weights.
        search: The search.
        score: Score on the validation set.
        seconds: Time for all sentences.
        sentences: Number of sentences.
    """

    weights: str
    search: SearchConfig
    score: Score
    seconds: float
    sentences: int

    @property
    def sentences_per_second(self) -> float:
        """Its speed."""
        return self.sentences / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``score`` is sacreBLEU's object."""
        return {
            "weights": self.weights,
            "algorithm": self.search.algorithm,
            "beam_size": self.search.beam_size,
            "length_penalty": self.search.length_penalty,
            "score": self.score.to_json(),
            "seconds": round(self.seconds, 2),
            "sentences_per_second": round(self.sentences_per_second, 2),
        }


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial with the highest rounded score; at a tie the narrowest search, then the first."""
    return min(trials, key=lambda one: (-round(one.score.value, DECIMALS), one.search.width))


def grid(
    own: SearchConfig, beam_sizes: Sequence[int], length_penalties: Sequence[float]
) -> list[SearchConfig]:
    """Every beam size with every length penalty; ``greedy``, without penalty, once.

    Other settings of the run's own search stay, except those of another algorithm; the n-best list
    has one entry.

    Raises:
        InputError: A value is out of its range.
    """
    greedy = {"algorithm": "greedy", "beam_size": 1, "nbest": 1, "coverage_penalty": 0.0}
    searches = []
    for size in sorted(set(beam_sizes)):
        if size == 1:
            searches.append(replace(own, **{**NEUTRAL, **greedy}))
            continue
        for penalty in sorted(set(length_penalties)):
            beam = {"algorithm": "beam", "beam_size": size, "nbest": 1, "length_penalty": penalty}
            searches.append(replace(own, **{**NEUTRAL, **beam}))
    return searches
