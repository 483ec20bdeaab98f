"""The settings and constraints that all searches share."""

import math
from unittest.mock import Mock

import pytest
import torch

from tests.helpers.decoding.steps import RecurrentStep, search_config
from transformer.common.errors import InputError
from transformer.decoding.batched_search import SEARCHES
from transformer.decoding.search.sampling import sample_search
from transformer.decoding.search.search import BanningStep, LookingAhead, constrain
from transformer.settings.tokenizer import BOS, EOS, PAD


def hypotheses(batch: int, beam: int, length: int) -> torch.Tensor:
    tokens = torch.full((batch, beam, length + 1), 4)
    tokens[..., 0] = BOS
    return tokens


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam_size": 0}, "decoding.beam_size=0 must be from 1 to 10000"),
        ({"nbest": 4}, "beam_size=3 can find; set decoding.beam_size=4"),
        ({"min_length": -1}, "decoding.min_length=-1 must be from 0 to 10000"),
        ({"max_length_ratio": math.nan}, "decoding.max_length_ratio=nan"),
        ({"length_penalty": math.inf}, "decoding.length_penalty=inf must be from -100"),
        ({"algorithm": "greedy"}, "decoding.beam_size=3 has no effect .* set decoding=beam"),
        ({"no_repeat_ngram": -1}, "decoding.no_repeat_ngram=-1 must be at least 0"),
        ({"eos_threshold": math.nan}, "decoding.eos_threshold=nan must be at least 0"),
        ({"algorithm": "sampling", "temperature": 0.0}, "decoding.temperature=0.0 must be above 0"),
        ({"algorithm": "sampling", "top_p": 0.0}, "decoding.top_p=0.0 must be above 0 and at"),
        ({"algorithm": "sampling", "min_p": 1.0}, "decoding.min_p=1.0 must be at least 0 and"),
        ({"top_k": 5}, "decoding.top_k=5 has no effect .* set decoding=sampling"),
        ({"algorithm": "diverse", "groups": 2}, "decoding.beam_size=3 is no multiple of decoding"),
    ],
)
def test_a_wrong_value_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search_config(**changes)


def test_the_minimum_and_the_limit() -> None:
    config = search_config(max_length_ratio=1.5, max_length_offset=4)
    assert [config.limit(subwords) for subwords in (0, 1, 2, 10)] == [4, 5, 7, 19]
    assert search_config(max_length_offset=0).limit(30) == 1
    values = torch.randn(2, 1, 6).log_softmax(-1)
    constrain(values, hypotheses(2, 1, 2), torch.tensor([2, 9]), search_config(min_length=5))
    assert values[0, 0, EOS].isfinite()
    assert values[1, 0, EOS] == -math.inf
    # The end is possible at the limit even if the model gives it no probability.
    values = torch.full((1, 1, 6), -math.inf)
    constrain(values, hypotheses(1, 1, 1), torch.tensor([1]), search_config())
    assert values[0, 0].isfinite().tolist() == [False, False, False, True, False, False]


def test_constraints_and_a_doubtful_end() -> None:
    values = torch.randn(3, 2, 6).log_softmax(-1)
    before = values.clone()
    constrain(values, hypotheses(3, 2, 2), torch.tensor([2, 3, 2]), search_config())
    assert values[1, :, [PAD, BOS]].eq(-math.inf).all()
    assert values[1, :, [1, EOS, 4, 5]].equal(before[1, :, [1, EOS, 4, 5]])
    assert values[[0, 2]][..., EOS].equal(before[[0, 2]][..., EOS])
    assert values[[0, 2]].isfinite().sum() == 4  # the end alone: two sentences, two hypotheses
    values = torch.log(torch.tensor([[[0.0, 0.0, 0.0, 0.3, 0.6, 0.1], [0, 0, 0, 0.05, 0.8, 0.15]]]))
    # ln 0.3 = -1.20 > 3 ln 0.6 = -1.53, but ln 0.05 = -3.0 < 3 ln 0.8 = -0.67
    constrain(values, hypotheses(1, 2, 1), torch.tensor([9]), search_config(eos_threshold=3.0))
    assert values[0, :, EOS].isfinite().tolist() == [True, False]
    values = torch.full((1, 1, 6), -math.inf)
    values[..., EOS] = -5.0
    constrain(values, hypotheses(1, 1, 1), torch.tensor([9]), search_config(eos_threshold=0.1))
    assert values[0, 0, EOS] == -5


@pytest.mark.parametrize(
    ("size", "subwords", "banned"),
    [
        (2, [4, 5, 4], {5}),
        (2, [4, 4], {4}),
        (2, [4, 5, 6], set()),
        (3, [4, 5, 6, 4, 5], {6}),
        (3, [4, 5], set()),
        (1, [4, 6], {4, 6}),
        (0, [4, 4, 4, 4], set()),
    ],
)
def test_no_ngram_occurs_twice(size: int, subwords: list[int], banned: set[int]) -> None:
    values = torch.zeros(1, 2, 8)
    tokens = torch.tensor([[[BOS, *subwords], [BOS, *[7] * len(subwords)]]])
    config = search_config(no_repeat_ngram=size)
    constrain(values, tokens, torch.tensor([99]), config)
    ruled_out = (values[0, 0] == -math.inf).nonzero().flatten().tolist()
    assert set(ruled_out) == banned | {PAD, BOS}


@pytest.mark.parametrize("algorithm", ["beam", "greedy", "diverse", "sampling"])
def test_nan_stops_every_search(algorithm: str) -> None:
    step, config = RecurrentStep([1], 1), search_config(algorithm=algorithm, beam_size=1)
    step.projection[0, 4] = math.nan
    with pytest.raises(InputError, match="NaN as log-probability after 0 target tokens"):
        if algorithm == "sampling":
            sample_search(step, torch.tensor([3]), config, [1])
        else:
            SEARCHES[algorithm](step, torch.tensor([3]), config)


@pytest.mark.parametrize("kind", [RecurrentStep, LookingAhead])
def test_a_ban_looks_ahead_where_its_step_does(kind: type) -> None:
    ban = BanningStep(Mock(spec=[*dir(RecurrentStep), *dir(kind)]), torch.tensor([7]))
    assert isinstance(ban, LookingAhead) == (kind is LookingAhead)
