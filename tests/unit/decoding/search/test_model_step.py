"""Ensembles average distributions in a search and in scoring."""

import math
import sys

import pytest
import torch

from tests.helpers.decoding.steps import search_config
from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.decoding.forced_decoding import score_subwords
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.greedy import greedy_search
from transformer.decoding.search.model_step import Averaging, Ensemble, build_step
from transformer.model.transformer import Transformer

SOURCES = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 11, 12, 3, 0]])
SEGMENTS = [[4, 5, 6, 7], [8, 9], [10, 11, 12]]
LIMITS = torch.tensor([9, 7, 8])


def sharp(seed: int, **changes: object) -> Transformer:
    model = tiny_transformer(seed=seed, **changes)
    with torch.no_grad():
        model.projection.weight.mul_(4)
    return model


@torch.inference_mode()
def test_arithmetic_and_geometric_mean() -> None:
    first, second = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.1, 0.8])
    logs = [first.log(), second.log()]
    models = [tiny_transformer(1), tiny_transformer(2)]
    assert_close(Ensemble(models).combine(logs).exp(), (first + second) / 2)
    geometric = (first * second).sqrt()
    found = Ensemble(models, "log_probability").combine(logs).exp()
    assert_close(found, geometric / geometric.sum())


@pytest.mark.parametrize("averaging", ["probability", "log_probability"])
@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_scoring_gives_the_log_probability_of_the_search(averaging: Averaging, beam: int) -> None:
    ensemble = Ensemble([sharp(1), sharp(2, encoder_layers=1, d_model=32), sharp(3)], averaging)
    config = search_config(beam_size=beam)
    search = greedy_search if beam == 1 else beam_search
    found = [best for best, *_ in search(build_step(ensemble, SOURCES, beam), LIMITS, config)]
    pairs = [(s, list(h.tokens)) for s, h in zip(SEGMENTS, found, strict=True)]
    # At its limit a sentence ends, however improbable that is: its score counts it all the same.
    scores = [math.fsum(row) for row in score_subwords(ensemble, pairs)]
    assert scores == pytest.approx([h.log_probability for h in found], abs=1e-4)
    # No single model gives it.
    assert math.fsum(score_subwords(ensemble.members[0], pairs)[0]) != pytest.approx(
        scores[0], 1e-3
    )


def test_an_ensemble_has_the_shortest_length() -> None:
    long, short = (tiny_transformer(max_length=m, positions="learned") for m in (64, 32))
    ensemble = Ensemble([long, short])
    assert ensemble.config.max_length == 32
    assert ensemble.max_lengths == (32, 32)
    assert Ensemble([tiny_transformer()]).max_lengths == (sys.maxsize, sys.maxsize)
