"""Minimum Bayes risk: of the candidates for a sentence, the one of highest expected utility.

It knows neither the model nor how the candidates were found. Sources: Kumar and Byrne 2004,
"Minimum Bayes-Risk Decoding for Statistical Machine Translation"; Eikema and Aziz 2020, "Is MAP
Decoding All You Need? The Inadequacy of the Mode in Neural Machine Translation", section 5.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float64
from torch import Tensor

from transformer.decoding.mbr.utility import utility_named
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.interface import Hypothesis


def least_risk(
    candidates: Sequence[Hypothesis], texts: Sequence[str], config: SearchConfig
) -> list[Hypothesis]:
    """Return the ``nbest`` of highest expected utility, the best first, which is their score.

    A text that several candidates have stands once, as the first of them, and weighs what they
    weigh together: fewer than ``nbest`` may come back. Equals stay in their order.

    Args:
        candidates: Of one sentence.
        texts: What they spell.
        config: The utility, and what found the candidates.
    """
    indices: dict[str, int] = {}
    belongs = [indices.setdefault(text, len(indices)) for text in texts]
    mass = torch.zeros(len(indices), dtype=torch.float64)
    mass.index_add_(0, torch.tensor(belongs), weights(candidates, config))
    utility = utility_named(config.utility)(list(indices))
    # Rounded once: what is equal stays equal, in whatever order it is summed.
    expected = [math.fsum(row) for row in (utility * mass).tolist()]
    first = [candidates[belongs.index(position)] for position in indices.values()]
    scored = [replace(one, score=value) for one, value in zip(first, expected, strict=True)]
    return sorted(scored, key=lambda one: -one.score)[: config.nbest]


def weights(
    candidates: Sequence[Hypothesis], config: SearchConfig
) -> Float64[Tensor, " candidate"]:
    """How probable each is as the truth; they sum to one.

    Samples come as often as they are probable and weigh the same. The entries of an n-best list
    weigh their probabilities, as if there were no other translations.
    """
    if config.candidates_by == "sampling":
        return torch.full((len(candidates),), 1 / len(candidates), dtype=torch.float64)
    totals = [one.log_probability for one in candidates]
    return torch.tensor(totals, dtype=torch.float64).softmax(0)
