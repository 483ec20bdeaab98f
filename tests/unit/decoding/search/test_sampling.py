"""Samples follow the model's distribution, whatever is in the batch."""

import math
from collections import Counter

import pytest
import torch

from tests.helpers.decoding.steps import RecurrentStep, search_config
from transformer.decoding.search import sampling
from transformer.decoding.search.sampling import sample_search, truncated
from transformer.decoding.search.search import Hypothesis
from transformer.settings.tokenizer import EOS

DRAWS = 4000


def samples(seed: int, count: int, batch: list[int], **changes: object) -> list[list[Hypothesis]]:
    config = search_config(algorithm="sampling", nbest=count, max_length_offset=2, **changes)
    limits = torch.full((len(batch),), 2)
    return sample_search(RecurrentStep(batch, count), limits, config, [seed + s for s in batch])


@pytest.mark.parametrize("sentence", [3, 8])
def test_the_first_token_has_the_distribution_of_the_model(sentence: int) -> None:
    """Chi-square with 5 - 1 degrees of freedom; its quantile at 0.999 is 18.5."""
    [drawn] = samples(11, DRAWS, [sentence])
    first = Counter(h.tokens[0] if h.tokens else EOS for h in drawn)
    row = RecurrentStep([sentence], 1)(torch.tensor([[2]]))[0, 0]
    row[[0, 2]] = -math.inf
    expected = row.softmax(-1) * DRAWS
    assert sum(first.values()) == DRAWS
    chi_square = sum((first[t] - e) ** 2 / e for t, e in enumerate(expected.tolist()) if e)
    assert chi_square < 18.5
    # ... of which the test would see a difference:
    uniform = sum((first[t] - DRAWS / 5) ** 2 / (DRAWS / 5) for t in (1, 3, 4, 5, 6))
    assert uniform > 100


def test_the_second_token_depends_on_the_first_as_in_the_model() -> None:
    [drawn] = samples(5, DRAWS, [3])
    most = Counter(h.tokens[0] for h in drawn if h.tokens).most_common(1)[0][0]
    second = Counter(
        h.tokens[1] if len(h.tokens) > 1 else EOS for h in drawn if h.tokens[:1] == (most,)
    )
    step = RecurrentStep([3], 1)
    step(torch.tensor([[2]]))
    row = step(torch.tensor([[most]]))[0, 0]
    row[[0, 2]] = -math.inf
    expected = (row.softmax(-1) * second.total()).tolist()
    assert sum((second[t] - e) ** 2 / e for t, e in enumerate(expected) if e) < 18.5


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
        ({"top_p": 0.81}, {0, 1, 2}),
        ({"min_p": 0.5}, {0, 1}),
        ({"epsilon": 0.16}, {0, 1}),
        ({"epsilon": 0.9}, {0}),
        ({"top_k": 3, "epsilon": 0.16}, {0, 1}),
        # The squares of the probabilities, 0.25 0.09 0.0225 0.0025, are of 0.365.
        ({"temperature": 0.5, "epsilon": 0.1}, {0, 1}),
        ({"temperature": 1e-3}, {0}),
    ],
)
def test_what_may_be_drawn(changes: dict[str, float], kept: set[int]) -> None:
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
