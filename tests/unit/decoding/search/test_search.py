"""What all searches share: settings, forbidden tokens, sentences that leave; and greedy search."""

import math

import pytest
import torch
from torch import Tensor

from tests.helpers.decoding.steps import RecurrentStep, search_config
from transformer.common.errors import InputError
from transformer.decoding.batched_search import SEARCHES
from transformer.decoding.search.greedy import greedy_search
from transformer.decoding.search.search import DONE, NAN, Sentences, constrain, kept_size
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import BOS, EOS, PAD


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam_size": 0}, "beam_size=0 must be from 1 to 10000"),
        ({"nbest": 4}, "nbest=4 .* set decoding.beam_size=4"),
        ({"max_length_ratio": math.nan}, "max_length_ratio=nan"),
        ({"algorithm": "greedy"}, "beam_size=3 has no effect .* set decoding=beam"),
        ({"algorithm": "sampling", "temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"top_k": 5}, "top_k=5 has no effect .* set decoding=sampling"),
        ({"algorithm": "diverse", "groups": 2}, "beam_size=3 is no multiple of decoding.groups=2"),
        ({"algorithm": "sampling", "shortlist": "x"}, "shortlist has no effect with sampling"),
        ({"cuda_graphs": True, "shortlist": "x"}, "needs the same tokens in each batch"),
        ({"algorithm": "mbr", "beam_size": 1, "candidates": 1}, "candidates=1 leaves nothing"),
    ],
)
def test_a_wrong_value_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search_config(**changes)


def test_the_limit_is_at_least_one() -> None:
    config = search_config(max_length_ratio=1.5, max_length_offset=4)
    assert [config.limit(subwords) for subwords in (0, 1, 10)] == [4, 5, 19]
    assert search_config(max_length_offset=0).limit(30) == 1


def constrained(
    values: Tensor, config: SearchConfig, subwords: list[int], limits: tuple[int, ...] = (9,)
) -> Tensor:
    """Log-probabilities after ``constrain``, every hypothesis with these subwords."""
    tokens = torch.tensor([BOS, *subwords]).expand(*values.shape[:2], -1)
    values = values.clone()
    constrain(values, tokens, torch.tensor(limits), config)
    return values


def test_padding_beginning_and_what_is_beyond_the_limit_are_forbidden() -> None:
    values = torch.randn(3, 2, 6).log_softmax(-1)
    after = constrained(values, search_config(), [4, 4], limits=(2, 3, 2))
    assert after[1, :, [PAD, BOS]].eq(-math.inf).all()
    assert after[1, :, [1, EOS, 4, 5]].equal(values[1, :, [1, EOS, 4, 5]])
    assert after[[0, 2]][..., EOS].equal(values[[0, 2]][..., EOS])
    assert after[[0, 2]].isfinite().sum() == 4  # the end alone: two sentences, two hypotheses
    # The end is possible at the limit even if the model gives it no probability.
    [[after]] = constrained(torch.full((1, 1, 6), -math.inf), search_config(), [4], limits=(1,))
    assert after.isfinite().tolist() == [False, False, False, True, False, False]


def test_the_end_is_forbidden_before_the_minimum_and_where_it_is_doubtful() -> None:
    values = torch.randn(2, 1, 6).log_softmax(-1)
    after = constrained(values, search_config(min_length=5), [4, 4], limits=(2, 9))
    assert after[0, 0, EOS].isfinite()  # the limit comes first
    assert after[1, 0, EOS] == -math.inf
    # ln 0.3 = -1.20 > 3 ln 0.6 = -1.53, but ln 0.05 = -3.0 < 3 ln 0.8 = -0.67
    values = torch.log(torch.tensor([[[0.0, 0.0, 0.0, 0.3, 0.6, 0.1], [0, 0, 0, 0.05, 0.8, 0.15]]]))
    after = constrained(values, search_config(eos_threshold=3.0), [4])
    assert after[0, :, EOS].isfinite().tolist() == [True, False]
    # It stays if nothing else is left.
    values = torch.full((1, 1, 6), -math.inf)
    values[..., EOS] = -5.0
    assert constrained(values, search_config(eos_threshold=0.1), [4])[0, 0, EOS] == -5


@pytest.mark.parametrize(
    ("subwords", "size", "banned"),
    [([4, 4], 2, {4}), ([4, 5, 6, 4, 5], 3, {6}), ([4, 5], 3, set()), ([4, 6], 1, {4, 6})],
)
def test_no_ngram_occurs_twice(subwords: list[int], size: int, banned: set[int]) -> None:
    after = constrained(torch.zeros(1, 1, 8), search_config(no_repeat_ngram=size), subwords)
    forbidden = (after[0, 0] == -math.inf).nonzero().flatten().tolist()
    assert set(forbidden) == banned | {PAD, BOS}


@pytest.mark.parametrize("algorithm", ["beam", "greedy", "diverse"])
def test_nan_stops_every_search(algorithm: str) -> None:
    step = RecurrentStep([1], 1)
    step.projection[0, 4] = math.nan
    config = search_config(algorithm=algorithm, beam_size=1)
    with pytest.raises(InputError, match="NaN as log-probability after 0 target tokens"):
        SEARCHES[algorithm](step, torch.tensor([3]), config)


def test_finished_sentences_leave_the_batch() -> None:
    step = RecurrentStep([1, 2, 3], 1)
    step.projection[:, EOS] = 0
    step.projection[0] = 0
    limits = torch.tensor([1, 4, 2])
    found = greedy_search(step, limits, search_config(min_length=9, beam_size=1))
    assert [len(hypothesis.tokens) for [hypothesis] in found] == [1, 4, 2]
    assert (step.calls, step.rows) == (5, 3 + 3 + 2 + 1 + 1)


def test_on_a_cpu_sentences_leave_when_one_in_16_is_done() -> None:
    cases = [(32, 32, 32), (31, 32, 32), (30, 32, 30), (7, 8, 7), (1, 2, 1)]
    for searched, rows, kept in cases:
        assert kept_size(searched, rows, torch.device("cpu")) == kept
    sentences = Sentences(torch.full((40,), 9))
    outcomes = [0] * 40
    outcomes[3] = DONE
    assert sentences.end(outcomes) == [3] and sentences.leave() is None
    outcomes[5] = DONE
    outcomes[7] = NAN
    # Number 3, which has ended and stayed, does not end again.
    assert sentences.end(outcomes) == [5, 7]
    rows = sentences.leave()
    assert rows is not None and rows.tolist() == [i for i in range(40) if i not in (3, 5, 7)]
    assert sentences.searched == list(range(37)) and len(sentences.limits) == 37
