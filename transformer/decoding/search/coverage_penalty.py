"""The coverage penalty: hypotheses with unattended source words get lower scores.

Source: Wu et al. 2016, "Google's Neural Machine Translation System", section 7, equation 14. It
ranks final hypotheses, whose attention is recomputed, so that the search keeps its fast kernel.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.data.batching.batch import Row
from transformer.decoding.alignment import batched_attention
from transformer.decoding.search.interface import Hypothesis
from transformer.model.head_masks import HeadName
from transformer.model.transformer import Transformer


def rank_by_coverage(
    model: Transformer,
    sources: Sequence[Row],
    found: Sequence[list[Hypothesis]],
    beta: float,
    head: HeadName | None,
) -> list[list[Hypothesis]]:
    """Add the penalty of weight ``beta`` to every score of each sentence, and rank again."""
    pairs = [(s, h.tokens) for s, beam in zip(sources, found, strict=True) for h in beam]
    weights = iter(batched_attention(model, pairs, head))
    scored = [
        [replace(h, score=h.score + coverage_penalty(next(weights), beta)) for h in beam]
        for beam in found
    ]
    return [sorted(beam, key=lambda hypothesis: -hypothesis.score) for beam in scored]


def coverage_penalty(attention: Float[Tensor, "target source"], beta: float) -> float:
    """``beta * sum over source subwords of log(min(total attention to it, 1))``."""
    covered = attention.sum(0).clamp(min=torch.finfo(torch.float32).tiny, max=1.0)
    return beta * math.fsum(covered.log().tolist())
