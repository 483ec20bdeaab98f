"""The settings and constraints that all searches share."""

import math
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from transformer.data.tokenizer import BOS, EOS, PAD
from transformer.decoding.search import SearchConfig, constrain, refuse_nan
from transformer.errors import InputError

from .steps import search_config

CONF = Path(__file__).parents[3] / "conf"


@pytest.mark.parametrize("name", ["beam", "greedy"])
def test_every_preset_builds(name: str) -> None:
    with initialize_config_dir(str(CONF / "decoding"), version_base=None):
        values = OmegaConf.to_container(compose(name))
    assert isinstance(values, dict)
    config = SearchConfig(**{str(key): value for key, value in values.items()})
    assert config.algorithm == name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam_size": 0}, "decoding.beam_size=0 must be at least 1"),
        ({"nbest": 0}, "decoding.nbest=0 must be at least 1"),
        ({"nbest": 4}, "decoding.nbest=4 is more than decoding.beam_size=3"),
        ({"min_length": -1}, "decoding.min_length=-1 must be at least 0"),
        ({"max_length_ratio": math.nan}, "decoding.max_length_ratio=nan"),
        ({"length_penalty": math.inf}, "decoding.length_penalty=inf must be finite"),
        ({"algorithm": "greedy"}, "set decoding.algorithm=beam"),
    ],
)
def test_a_wrong_value_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search_config(**changes)


def test_the_limit_follows_the_source() -> None:
    config = search_config(max_length_ratio=1.5, max_length_offset=4)
    assert [config.limit(pieces) for pieces in (0, 1, 2, 10)] == [4, 5, 7, 19]
    assert search_config(max_length_offset=0).limit(30) == 1


def test_constraints_leave_the_rest_as_it_is() -> None:
    values = torch.randn(3, 2, 6).log_softmax(-1)
    before = values.clone()
    constrain(values, length=2, limits=torch.tensor([2, 3, 2]), min_length=0)
    assert values[1, :, [PAD, BOS]].eq(-math.inf).all()
    assert values[1, :, [1, EOS, 4, 5]].equal(before[1, :, [1, EOS, 4, 5]])
    assert values[[0, 2]][..., EOS].equal(before[[0, 2]][..., EOS])
    assert values[[0, 2]].isfinite().sum() == 4  # the end alone: two sentences, two hypotheses


def test_the_minimum_yields_to_the_limit() -> None:
    values = torch.randn(2, 1, 6).log_softmax(-1)
    constrain(values, length=2, limits=torch.tensor([2, 9]), min_length=5)
    assert values[0, 0, EOS].isfinite()
    assert values[1, 0, EOS] == -math.inf


def test_the_end_is_possible_at_the_limit_even_where_the_model_rules_it_out() -> None:
    values = torch.full((1, 1, 6), -math.inf)
    constrain(values, length=1, limits=torch.tensor([1]), min_length=0)
    assert values[0, 0].isfinite().tolist() == [False, False, False, True, False, False]


def test_nan_is_refused() -> None:
    refuse_nan(torch.tensor([0.0, -math.inf]), 3)
    with pytest.raises(FloatingPointError, match="after 3 target tokens"):
        refuse_nan(torch.tensor([0.0, math.nan]), 3)
