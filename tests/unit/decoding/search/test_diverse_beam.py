"""Groups of beams that avoid each other's words."""

import math
from dataclasses import replace

import pytest
import torch

from tests.helpers.decoding.steps import RecurrentStep, search_config
from tests.unit.decoding.search.test_beam import TableStep
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.diverse_beam import diverse_search
from transformer.decoding.search.search import Hypothesis

SENTENCES = [3, 8, 21, 5]
LIMITS = torch.tensor([4, 6, 5, 6])


def diverse(groups: int, diversity: float, beam: int = 6, nbest: int = 6) -> list[list[Hypothesis]]:
    config = search_config(
        algorithm="diverse", beam_size=beam, nbest=nbest, groups=groups, diversity=diversity
    )
    return diverse_search(RecurrentStep(SENTENCES, beam), LIMITS, config)


def test_groups_with_and_without_diversity_in_any_batch() -> None:
    plain = beam_search(RecurrentStep(SENTENCES, 6), LIMITS, search_config(beam_size=6, nbest=6))
    assert diverse(1, 0.5) == plain
    plain = beam_search(RecurrentStep(SENTENCES, 2), LIMITS, search_config(beam_size=2, nbest=2))
    together = diverse(3, 0.0)
    assert [[h.tokens for h in found] for found in together] == [
        [h.tokens for h in found] for found in plain
    ]
    for found in diverse(3, 100.0, beam=3, nbest=3):
        assert len({h.tokens[:1] for h in found}) == 3
    config = search_config(algorithm="diverse", beam_size=6, nbest=6, groups=3, diversity=0.5)
    for index, found in enumerate(diverse(3, 0.5)):
        rows = slice(index, index + 1)
        [alone] = diverse_search(RecurrentStep(SENTENCES[rows], 6), LIMITS[rows], config)
        assert [h.tokens for h in alone] == [h.tokens for h in found]
    # The second group still takes the most probable token; the third pays for it twice.
    step = TableStep([-9.0, -9.0, -9.0, -8.0, -0.5, -1.25], 1, 3)
    config = replace(config, beam_size=3, nbest=3)
    [found] = diverse_search(step, torch.tensor([1]), config)
    assert [h.tokens for h in found] == [(4,), (5,)]


@pytest.mark.parametrize("diversity", [0.3, 100.0])
def test_scores_are_those_of_the_model(diversity: float) -> None:
    for seed, found in zip(SENTENCES, diverse(3, diversity), strict=True):
        assert found == sorted(found, key=lambda h: -h.score)
        for hypothesis in found:
            step, total, before = RecurrentStep([seed], 1), 0.0, 2
            for token in (*hypothesis.tokens, 3):
                row = step(torch.tensor([[before]]))[0, 0]
                total, before = total + row[token].item(), token
            assert math.isclose(hypothesis.log_probability, total, abs_tol=1e-4)
