"""Which searches are tried, and which trial wins."""

from typing import Any

import pytest

from tests.helpers.steps import search_config
from transformer.common.errors import InputError
from transformer.evaluation.metrics import Score
from transformer.runs.tuning.trial import Trial, best_trial, grid


def trial(value: float, weights: str = "single", **changes: Any) -> Trial:
    score = Score("BLEU", value, "nrefs:1", {"name": "BLEU", "score": round(value, 2)})
    return Trial(weights, search_config(**changes), score, seconds=4.0, sentences=10)


def test_the_highest_score_wins() -> None:
    trials = [trial(30.0), trial(31.0, beam_size=10), trial(29.0, beam_size=1)]
    assert best_trial(trials) is trials[1]


def test_what_looks_equal_is_equal_and_the_narrower_beam_wins() -> None:
    trials = [trial(30.0, beam_size=5), trial(30.001, beam_size=10), trial(30.0, beam_size=2)]
    assert best_trial(trials) is trials[2]
    trials.append(trial(30.006, beam_size=10))
    assert best_trial(trials) is trials[3]


def test_of_full_equals_the_first_wins() -> None:
    trials = [trial(30.0, "ema"), trial(30.0, "average")]
    assert best_trial(trials) is trials[0]


def test_greedy_stands_once_and_every_beam_with_every_penalty() -> None:
    found = grid(search_config(length_penalty=0.3), [4, 1, 2, 4], [1.0, 0.0])
    assert [(one.algorithm, one.beam_size, one.length_penalty) for one in found] == [
        ("greedy", 1, 0.3),
        ("beam", 2, 0.0),
        ("beam", 2, 1.0),
        ("beam", 4, 0.0),
        ("beam", 4, 1.0),
    ]


@pytest.mark.parametrize(
    "own",
    [
        {"algorithm": "sampling", "temperature": 0.5, "nbest": 4},
        {"algorithm": "diverse", "beam_size": 4, "groups": 2, "diversity": 0.5},
        {"algorithm": "mbr", "beam_size": 1, "candidates": 4},
    ],
)
def test_what_only_another_algorithm_reads_goes_and_the_rest_stays(own: dict[str, Any]) -> None:
    for one in grid(search_config(**own, no_repeat_ngram=3, min_length=2), [1, 2], [0.6]):
        assert (one.no_repeat_ngram, one.min_length, one.nbest) == (3, 2, 1)
        assert (one.temperature, one.groups, one.diversity, one.candidates) == (1.0, 1, 0.0, 1)


def test_a_beam_of_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"decoding\.beam_size=0 must be from 1 to 10000"):
        grid(search_config(), [0], [1.0])


def test_plain_values() -> None:
    assert trial(30.0).to_json() == {
        "weights": "single",
        "algorithm": "beam",
        "beam_size": 3,
        "length_penalty": 0.0,
        "score": {"name": "BLEU", "score": 30.0},
        "seconds": 4.0,
        "sentences_per_second": 2.5,
    }
