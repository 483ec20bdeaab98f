"""Facts about greedy search; that it equals beam search of width one is a parity test."""

import math

import pytest
import torch

from tests.helpers.decoding.steps import RecurrentStep, search_config
from transformer.decoding.search.greedy import first_largest, greedy_search

GREEDY = search_config(algorithm="greedy", beam_size=1)


def test_every_token_is_the_most_probable_one() -> None:
    [[hypothesis]] = greedy_search(RecurrentStep([5], 1), torch.tensor([9]), GREEDY)
    step = RecurrentStep([5], 1)
    token, total, tokens = 2, 0.0, []
    while token != 3 and len(tokens) < 10:
        values = step(torch.tensor([[token]])).flatten()
        values[[0, 2]] = -math.inf
        token = 3 if len(tokens) == 9 else int(values.argmax())
        total += float(values[token])
        tokens.append(token)
    assert [*hypothesis.tokens, 3] == tokens
    assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
    assert hypothesis.score == hypothesis.log_probability


def test_finished_sentences_leave_the_batch() -> None:
    step = RecurrentStep([1, 2, 3], 1)
    step.projection[:, 3] = 0
    step.projection[0] = 0
    limits = torch.tensor([1, 4, 2])
    found = greedy_search(step, limits, search_config(min_length=9, beam_size=1))
    assert [len(hypothesis.tokens) for [hypothesis] in found] == [1, 4, 2]
    assert (step.calls, step.rows) == (5, 3 + 3 + 2 + 1 + 1)


@pytest.mark.parametrize("many", [5, 128, 129, 300, 1000])
def test_the_first_of_equal_values_is_found_as_max_does(many: int) -> None:
    values = torch.randint(4, (50, many), generator=torch.Generator().manual_seed(many)).float()
    values[0], values[1, -1], values[2, 0] = 0.0, 9.0, 9.0
    best, index = first_largest(values)
    expected = torch.tensor([row.index(max(row)) for row in values.tolist()])
    assert torch.equal(index[:, 0], expected) and torch.equal(best[:, 0], values.amax(1))
