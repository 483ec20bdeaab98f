"""Which weights and searches are tried, and that the best is what the verbs then use."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS
from tests.helpers.runs.tuning_runs import write_run
from transformer.checkpoint.checkpoint import PORTABLE, read_payload, write_payload
from transformer.common.errors import InputError
from transformer.decoding.translator import Translator
from transformer.evaluation.metrics import Score, score
from transformer.runs.tuning import (
    Trial,
    Tuning,
    best_trial,
    grid,
    offered_weights,
    try_all,
    with_search,
)
from transformer.settings.evaluation import TuneConfig
from transformer.settings.metrics import MetricsConfig

NAME = "model.projection.weight"


def test_the_weights_of_a_run_that_can_be_tried(tmp_path: Path) -> None:
    plain, average = (tmp_path / name for name in ("plain", "average"))
    plain.mkdir()
    average.mkdir()
    run = write_run(plain)
    offers, lacking = offered_weights(run, ["single", "average", "ema"], 2)
    assert list(offers) == ["single", "average"]
    assert list(lacking) == ["ema"]
    files = [run / "checkpoints" / f"step-0000000{step}.ckpt" for step in (1, 2)]
    mean = torch.stack([read_payload(file)["state_dict"][NAME] for file in files]).mean(0)
    torch.testing.assert_close(offers["average"]["state_dict"][NAME], mean)
    best = read_payload(run / "checkpoints" / "best.ckpt")
    assert torch.equal(offers["single"]["state_dict"][NAME], best["state_dict"][NAME])
    for payload in offers.values():
        assert set(payload) == {"state_dict", PORTABLE}
    # Tuned weights are not tuned again.
    (run / "checkpoints" / "last.ckpt").rename(run / "checkpoints" / "tuned.ckpt")
    again = offered_weights(run, [], 5)[0]["single"]["state_dict"][NAME]
    assert torch.equal(again, best["state_dict"][NAME])
    # With a moving average the weights beneath it are the single ones.
    run = write_run(average, ema=True, steps=1)
    offers, lacking = offered_weights(run, ["single", "average", "ema"], 5)
    best = read_payload(run / "checkpoints" / "best.ckpt")
    assert list(offers) == ["ema", "single"]
    assert list(lacking) == ["average"]
    assert torch.equal(offers["ema"]["state_dict"][NAME], best["state_dict"][NAME])
    assert torch.equal(offers["single"]["state_dict"][NAME], best["current_model_state"][NAME])


def test_only_the_search_changes(tmp_path: Path) -> None:
    payload = read_payload(write_run(tmp_path) / "checkpoints" / "best.ckpt")
    changed = with_search(payload, search_config(beam_size=7))
    assert changed[PORTABLE]["config"]["decoding"]["beam_size"] == 7
    assert payload[PORTABLE]["config"]["decoding"]["beam_size"] == 2
    changed[PORTABLE]["config"]["decoding"] = payload[PORTABLE]["config"]["decoding"]
    assert changed == payload


def tried(offers: Any, show: Any = lambda _: None, **changes: Any) -> Tuning:
    values: dict[str, Any] = {
        "beam_sizes": [1, 2, 3],
        "length_penalties": [0.0, 1.0],
        "metric": "chrf",
        "batch_tokens": 500,
    }
    metrics = changes.pop("metrics", MetricsConfig())
    config = TuneConfig(checkpoint="run", **(values | changes))
    return try_all(offers, config, metrics, show)


def test_weights_come_first_then_searches_with_the_best_of_them(tmp_path: Path) -> None:
    offers, _ = offered_weights(write_run(tmp_path), ["average"], 5)
    shown: list[Any] = []
    found = tried(offers, shown.append)
    trials = list(found.trials)
    assert [one for one in shown if isinstance(one, Trial)] == trials
    assert [one for one in shown if not isinstance(one, Trial)] == list(found.challenges)
    assert [one.weights for one in trials[:2]] == ["single", "average"]
    assert {one.weights for one in trials[2:]} == {found.best.weights}
    # Beam 2 without a penalty is the run's own search, and has been tried.
    assert [(one.search.beam_size, one.search.length_penalty) for one in trials[2:]] == [
        *[(1, 0.0), (2, 1.0)],
        *[(3, 0.0), (3, 1.0)],
    ]
    assert all(one.seconds > 0 and one.sentences == len(PAIRS) for one in trials)


@pytest.mark.thorough
def test_what_is_written_scores_what_the_trial_scored(tmp_path: Path) -> None:
    offers, _ = offered_weights(write_run(tmp_path), ["average"], 5)
    sources, references = zip(*PAIRS, strict=True)
    for trial in tried(offers, beam_sizes=[1, 3], metrics=RAW).trials:
        file = tmp_path / "written.ckpt"
        write_payload(with_search(offers[trial.weights], trial.search), file)
        translator = Translator.load(file)
        assert translator.search == trial.search
        texts = [found.text for found in translator.translate(sources)]
        assert score(texts, references, ("chrf",), config=RAW)[0].value == trial.score.value


def test_trials_are_scored_by_these_metrics(tmp_path: Path) -> None:
    offers, _ = offered_weights(write_run(tmp_path), [], 5)
    metrics = MetricsConfig(tokenize="char", lowercase=True)
    (only,) = tried(offers, metrics=metrics, beam_sizes=[], metric=None, sentences=2).trials
    assert "|case:lc|eff:no|tok:char|" in only.score.signature
    assert only.sentences == 2


def test_what_cannot_be_tuned_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    offers, _ = offered_weights(run, [], 5)
    for side in ("en", "de"):
        (tmp_path / f"validation.{side}").write_text("")
    with pytest.raises(InputError, match=r"device=gpu cannot be used"):
        tried(offers, device="gpu")
    with pytest.raises(InputError, match=r"validation\.en: the text has no line"):
        tried(offers)
    payload = read_payload(run / "checkpoints" / "best.ckpt")
    payload[PORTABLE]["config"]["task"] = "tagging"
    write_payload(payload, run / "checkpoints" / "best.ckpt")
    with pytest.raises(InputError, match="was trained for task=tagging, not text to text"):
        offered_weights(run, ["single"], 5)


def trial(value: float, weights: str = "single", **changes: Any) -> Trial:
    score = Score("BLEU", value, "nrefs:1", {"name": "BLEU", "score": round(value, 2)})
    return Trial(weights, search_config(**changes), score, seconds=4.0, sentences=10)


@pytest.mark.parametrize(
    ("trials", "best"),
    [
        ([trial(30.0), trial(31.0, beam_size=10), trial(29.0, beam_size=1)], 1),
        # Scores that look equal are equal, and the run's own wins, or else the narrower beam.
        ([trial(30.0, beam_size=5), trial(30.001, beam_size=10), trial(30.0, beam_size=2)], 0),
        ([trial(29.0), trial(30.0, beam_size=5), trial(30.001, beam_size=2)], 2),
        ([trial(30.0, beam_size=5), trial(30.006, beam_size=10)], 1),
        ([trial(30.0, "ema"), trial(30.0, "average")], 0),
    ],
)
def test_which_trial_wins(trials: list[Trial], best: int) -> None:
    assert best_trial(trials) is trials[best]


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
def test_keys_of_another_algorithm_are_dropped(own: dict[str, Any]) -> None:
    for one in grid(search_config(**own, no_repeat_ngram=3, min_length=2), [1, 2], [0.6]):
        assert (one.no_repeat_ngram, one.min_length, one.nbest) == (3, 2, 1)
        assert (one.temperature, one.groups, one.diversity, one.candidates) == (1.0, 1, 0.0, 1)


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
