"""Beam search against exhaustive search, greedy against beam, the cached step against scoring."""

import itertools

import pytest
import torch
from torch import Tensor

from tests.helpers.decoding.steps import RecurrentStep, search_config
from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.decoding.forced_decoding import score_targets
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.greedy import greedy_search
from transformer.decoding.search.model_step import ModelStep
from transformer.model.transformer import Transformer
from transformer.settings.decoding import length_penalty
from transformer.settings.tokenizer import BOS, EOS, PAD

PIECES = (1, 4, 5, 6)
LIMIT = 4
ALL = [tokens for length in range(LIMIT + 1) for tokens in itertools.product(PIECES, repeat=length)]


def sharp_transformer(**changes: object) -> Transformer:
    """A random model that prefers some tokens clearly, so that rounding decides nothing."""
    changes = {"source_vocab_size": 7, "target_vocab_size": 7, **changes}
    model = tiny_transformer(seed=3, **changes)
    with torch.no_grad():
        model.projection.weight.mul_(4)
    return model


SOURCES = torch.tensor([[4, 5, 6, 3], [6, 6, 3, PAD], [5, 3, PAD, PAD]])


def padded(targets: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
    longest = max(len(tokens) for tokens in targets) + 1
    inputs = torch.full((len(targets), longest), PAD)
    outputs = inputs.clone()
    for row, tokens in enumerate(targets):
        inputs[row, : len(tokens) + 1] = torch.tensor([BOS, *tokens])
        outputs[row, : len(tokens) + 1] = torch.tensor([*tokens, EOS])
    return inputs, outputs


@torch.inference_mode()
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.0])
def test_unlimited_beam_is_exhaustive_over_a_transformer(alpha: float) -> None:
    model = sharp_transformer()
    beam = len(ALL)
    config = search_config(beam_size=beam, nbest=beam, length_penalty=alpha)
    limits = torch.full((len(SOURCES),), LIMIT)
    found = beam_search(ModelStep(model, SOURCES, beam), limits, config)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        memory = model.encode(source.expand(beam, -1))
        totals = score_targets(model, memory, *padded(ALL)).sum(1).tolist()
        scores = {
            tokens: total / length_penalty(len(tokens) + 1, alpha)
            for tokens, total in zip(ALL, totals, strict=True)
        }
        assert len(hypotheses) == beam
        assert {h.tokens for h in hypotheses} == set(scores)
        assert [h.score for h in hypotheses] == sorted([h.score for h in hypotheses], reverse=True)
        for hypothesis in hypotheses:
            assert hypothesis.score == pytest.approx(scores[hypothesis.tokens], rel=1e-4, abs=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.0])
def test_the_bound_loses_nothing_of_the_exhaustive_search(alpha: float) -> None:
    seeds = list(range(8))
    beam = len(ALL)
    limits = torch.full((len(seeds),), LIMIT)
    best = search_config(beam_size=beam, nbest=1, length_penalty=alpha)
    every = search_config(beam_size=beam, nbest=beam, length_penalty=alpha)
    quick = beam_search(RecurrentStep(seeds, beam), limits, best)
    full = beam_search(RecurrentStep(seeds, beam), limits, every)
    assert [hypotheses[0] for hypotheses in full] == [hypothesis for [hypothesis] in quick]


@torch.inference_mode()
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.0])
def test_beam_of_one_is_greedy(alpha: float) -> None:
    seeds = list(range(40))
    limits = torch.tensor([1 + seed % 9 for seed in seeds])
    config = search_config(beam_size=1, length_penalty=alpha)
    beam = beam_search(RecurrentStep(seeds, 1), limits, config)
    greedy = greedy_search(RecurrentStep(seeds, 1), limits, config)
    assert [[h.tokens for h in row] for row in beam] == [[h.tokens for h in row] for row in greedy]
    assert [h.score for [h] in beam] == pytest.approx([h.score for [h] in greedy], abs=1e-5)
    assert len({len(h.tokens) for [h] in greedy}) > 3
    model = sharp_transformer()
    limits = torch.tensor([9, 7, 5])
    beam = beam_search(ModelStep(model, SOURCES, 1), limits, config)
    greedy = greedy_search(ModelStep(model, SOURCES, 1), limits, config)
    assert [h.tokens for [h] in beam] == [h.tokens for [h] in greedy]


@torch.inference_mode()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_hypothesis_scores_as_forced_decoding_says(attention: str) -> None:
    model = sharp_transformer(attention=attention)
    config = search_config(beam_size=5, nbest=5, min_length=2)
    found = beam_search(ModelStep(model, SOURCES, 5), torch.tensor([9, 6, 4]), config)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        targets = padded([h.tokens for h in hypotheses])
        memory = model.encode(source.expand(len(hypotheses), -1))
        forced = score_targets(model, memory, *targets)
        assert_close(torch.tensor([h.log_probability for h in hypotheses]), forced.sum(1))
