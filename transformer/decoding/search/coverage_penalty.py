"""The coverage penalty: hypotheses that leave source words unattended lose.

It does not know how hypotheses were found. Source: Wu et al. 2016, "Google's Neural Machine
Translation System", section 7, equation 14. The attention is computed once more for the hypotheses
that are left at the end, so that the search itself keeps its fast kernel: the penalty ranks them,
and does not steer the search.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.data.batching.batch import Row, collate
from transformer.decoding.alignment import aligning_attention
from transformer.decoding.search.interface import Hypothesis
from transformer.model.heads import HeadName
from transformer.model.transformer import Transformer


def ranked_by_coverage(
    model: Transformer,
    sources: Sequence[Row],
    found: Sequence[list[Hypothesis]],
    beta: float,
    head: HeadName | None,
) -> list[list[Hypothesis]]:
    """Add the penalty to every score, and rank again.

    Args:
        model: In evaluation mode.
        sources: Pieces of each sentence.
        found: Its hypotheses.
        beta: Weight of the penalty.
        head: Where to look, as in ``aligning_attention``.
    """
    pairs = [(s, h.tokens) for s, rows in zip(sources, found, strict=True) for h in rows]
    batch = collate(*zip(*pairs, strict=True)).to(next(model.parameters()).device)
    weights = aligning_attention(model, batch.source, batch.target_input, head).float().cpu()
    penalties = iter(
        [
            coverage_penalty(row[: len(target), : len(source)], beta)
            for row, (source, target) in zip(weights, pairs, strict=True)
        ]
    )
    scored = [[replace(h, score=h.score + next(penalties)) for h in rows] for rows in found]
    return [sorted(rows, key=lambda hypothesis: -hypothesis.score) for rows in scored]


def coverage_penalty(attention: Float[Tensor, "target source"], beta: float) -> float:
    """``beta * sum over source pieces of log(min(attention they get in all, 1))``."""
    covered = attention.sum(0).clamp(min=torch.finfo(torch.float32).tiny, max=1.0)
    return beta * math.fsum(covered.log().tolist())
