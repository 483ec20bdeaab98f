"""Samples follow the distribution of the model, in any batch."""

import math
from collections import Counter

import pytest
import torch

from tests.helpers.decoding.steps import RecurrentStep, search_config
from transformer.decoding.search import sampling
from transformer.decoding.search.sampling import sample_search, truncated
from transformer.decoding.search.search import Hypothesis
from transformer.settings.tokenizer import BOS, EOS, PAD

DRAWS = 4000


def samples(seed: int, count: int, batch: list[int], **changes: object) -> list[list[Hypothesis]]:
    config = search_config(algorithm="sampling", nbest=count, max_length_offset=2, **changes)
    limits = torch.full((len(batch),), 2)
    return sample_search(RecurrentStep(batch, count), limits, config, [seed + s for s in batch])


def chi_square(drawn: Counter[int], logits: torch.Tensor) -> float:
    """Of tokens drawn from a distribution; 4 degrees of freedom, whose 0.999 quantile is 18.5."""
    logits[[PAD, BOS]] = -math.inf
    expected = (logits.softmax(-1) * drawn.total()).tolist()
    return sum((drawn[token] - e) ** 2 / e for token, e in enumerate(expected) if e)


def test_each_token_has_the_distribution_of_the_model_after_the_tokens_before() -> None:
    [drawn] = samples(11, DRAWS, [3])
    tokens = [[*h.tokens, EOS] for h in drawn]
    step = RecurrentStep([3], 1)
    first = Counter(row[0] for row in tokens)
    assert chi_square(first, step(torch.tensor([[BOS]]))[0, 0]) < 18.5
    most = max(first.keys() - {EOS}, key=lambda token: first[token])
    second = Counter(row[1] for row in tokens if row[0] == most)
    assert chi_square(second, step(torch.tensor([[most]]))[0, 0]) < 18.5


def test_samples_have_their_probability_in_any_batch() -> None:
    [alone] = samples(1, 5, [4])
    together = samples(1, 5, [9, 4, 2, 17])
    assert [h.tokens for h in together[1]] == [h.tokens for h in alone]
    assert samples(1, 5, [4]) == [alone]
    assert [h.tokens for h in samples(2, 5, [4])[0]] != [h.tokens for h in alone]
    [drawn] = samples(1, 20, [4], temperature=0.5)
    for hypothesis in drawn:
        step = RecurrentStep([4], 1)
        total = 0.0
        for before, token in zip((2, *hypothesis.tokens), (*hypothesis.tokens, EOS), strict=True):
            total += step(torch.tensor([[before]]))[0, 0, token].item()
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-5)
    scores = [hypothesis.score for hypothesis in drawn]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.49}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"min_p": 0.5}, {0, 1}),
        ({"epsilon": 0.16}, {0, 1}),
        ({"epsilon": 0.9}, {0}),
        # The squares of the probabilities, 0.25 0.09 0.0225 0.0025, are of 0.365.
        ({"temperature": 0.5, "epsilon": 0.1}, {0, 1}),
    ],
)
def test_truncation_keeps_these_tokens(changes: dict[str, float], kept: set[int]) -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    config = search_config(algorithm="sampling", **changes)
    probability = truncated(logits, config).softmax(-1)
    assert set((probability > 1e-6).nonzero().flatten().tolist()) == kept


def test_a_device_without_float64_draws_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest random number, rounded, is still below the mass of all tokens."""
    assert sampling.exact_dtype(torch.device("mps")) == torch.float32
    monkeypatch.setattr(sampling, "exact_dtype", lambda device: torch.float32)
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, 1 - 2**-53).double())
    [[drawn]] = samples(1, 1, [3])
    assert drawn.tokens == (6, 6)
