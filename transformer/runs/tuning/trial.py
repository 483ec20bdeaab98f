"""One way of translating a text, and what it was worth; which ways there are, and which is best.

It knows neither weights nor files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformer.decoding.search.config import NEUTRAL, SearchConfig
from transformer.evaluation.metrics import DECIMALS, Score


@dataclass(frozen=True)
class Trial:
    """What came of it.

    Attributes:
        weights: Their name.
        search: How was searched.
        score: On the validation set.
        seconds: That the translation of all sentences took.
        sentences: How many there were.
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
    """The one of the highest score as people read it.

    Of those that look equal it is the one that follows the fewest hypotheses, then the first.
    """
    return min(trials, key=lambda one: (-round(one.score.value, DECIMALS), one.search.width))


def grid(
    own: SearchConfig, beam_sizes: Sequence[int], length_penalties: Sequence[float]
) -> list[SearchConfig]:
    """Every beam size with every length penalty; but ``greedy``, which no penalty changes, once.

    What else the run's own search has stays, but what only another algorithm reads, and the length
    of the n-best list, which is one.

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
