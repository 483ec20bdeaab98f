"""The coverage penalty by hand, and what it does to an n-best list."""

import math

import pytest
import torch

from tests.helpers.decoding.steps import search_config
from tests.helpers.model.models import tiny_transformer
from transformer.decoding.alignment import aligning_attention
from transformer.decoding.batched_search import coverage_penalty, rank_by_coverage, search_batch
from transformer.decoding.search.search import Hypothesis

SOURCES = [[5, 6, 7, 8], [9, 10]]


def test_the_formula() -> None:
    attention = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]])
    assert coverage_penalty(attention, 2.0) == pytest.approx(2 * (math.log(0.4) + math.log(0.2)))
    assert coverage_penalty(torch.ones(3, 2), 1.0) == 0
    assert math.isfinite(coverage_penalty(torch.zeros(2, 2), 1.0))


def test_scores_gain_the_penalty_and_are_ranked_again() -> None:
    model = tiny_transformer()
    found = [
        [Hypothesis((4, 11), -1.0, -2.0), Hypothesis((12, 13, 14, 15, 4, 5), -1.01, -3.0)],
        [Hypothesis((7,), -0.5, -0.5)],
    ]
    ranked = rank_by_coverage(model, SOURCES, found, 10.0, None)
    for source, before, after in zip(SOURCES, found, ranked, strict=True):
        scores = {h.tokens: h.score for h in after}
        for hypothesis in before:
            # Alone, without padding.
            pair = torch.tensor([[*source, 3]]), torch.tensor([[2, *hypothesis.tokens]])
            [weights] = aligning_attention(model, *pair, None)
            part = weights[: len(hypothesis.tokens), : len(source)]
            expected = hypothesis.score + coverage_penalty(part, 10.0)
            assert scores[hypothesis.tokens] == pytest.approx(expected, abs=1e-4)
    # Six pieces cover the source better than two, and lead now.
    assert [len(h.tokens) for h in ranked[0]] == [6, 2]


@pytest.mark.parametrize("beta", [0.0, 5.0])
def test_the_penalty_chooses_among_all_that_the_beam_ends_with(beta: float) -> None:
    model = tiny_transformer()
    every = search_batch(model, SOURCES, search_config(beam_size=4, nbest=4))
    best = search_batch(model, SOURCES, search_config(beam_size=4, coverage_penalty=beta))
    expected = rank_by_coverage(model, SOURCES, every, beta, None) if beta else every
    assert [[h.tokens for h in rows] for rows in best] == [
        [h.tokens for h in rows[:1]] for rows in expected
    ]
