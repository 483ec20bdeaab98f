"""Minimum Bayes risk: the candidate of a sentence with the highest expected utility.

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


def minimum_bayes_risk(
    candidates: Sequence[Hypothesis], texts: Sequence[str], config: SearchConfig
) -> list[Hypothesis]:
    """Return the ``nbest`` candidates of the highest expected utility, their score, best first.

    Candidates with the same text become one, the first, with their summed weight: fewer than
    ``nbest`` may come back. Ties stay in their order.

    Args:
        candidates: Of one sentence.
        texts: Their texts.
        config: The utility, and the search that found the candidates.
    """
    distinct = list(dict.fromkeys(texts))
    index = torch.tensor([distinct.index(text) for text in texts])
    mass = torch.zeros(len(distinct), dtype=torch.float64)
    mass.index_add_(0, index, weights(candidates, config))
    # fsum rounds once: ties stay ties in any order of the sum.
    expected = map(math.fsum, (utility_named(config.utility)(distinct) * mass).tolist())
    first = [candidates[texts.index(text)] for text in distinct]
    scored = [replace(one, score=value) for one, value in zip(first, expected, strict=True)]
    return sorted(scored, key=lambda one: -one.score)[: config.nbest]


def weights(
    candidates: Sequence[Hypothesis], config: SearchConfig
) -> Float64[Tensor, " candidate"]:
    """The probability of each candidate to be right; they sum to one.

    Samples have equal weights, because their frequency is their probability. The entries of an
    n-best list have their probabilities, normalised.
    """
    if config.candidates_by == "sampling":
        return torch.full((len(candidates),), 1 / len(candidates), dtype=torch.float64)
    totals = [one.log_probability for one in candidates]
    return torch.tensor(totals, dtype=torch.float64).softmax(0)
