"""Which weights and searches are tried, and that the best is what the verbs then use."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS
from tests.helpers.runs.tuning_runs import write_run
from transformer.checkpoint.checkpoint import PORTABLE, read_payload
from transformer.evaluation.metrics import Score
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
    plain = tmp_path / "plain"
    average = tmp_path / "average"
    plain.mkdir()
    average.mkdir()
    run = write_run(plain)
    offers, missing = offered_weights(run, ["single", "average", "ema"], 2)
    assert list(offers) == ["single", "average"]
    assert list(missing) == ["ema"]
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
    offers, missing = offered_weights(run, ["single", "average", "ema"], 5)
    best = read_payload(run / "checkpoints" / "best.ckpt")
    assert list(offers) == ["ema", "single"]
    assert list(missing) == ["average"]
    assert torch.equal(offers["ema"]["state_dict"][NAME], best["state_dict"][NAME])
    assert torch.equal(offers["single"]["state_dict"][NAME], best["current_model_state"][NAME])
    # Only the search changes in what is written.
    changed = with_search(best, search_config(beam_size=7))
    assert changed[PORTABLE]["config"]["decoding"]["beam_size"] == 7
    changed[PORTABLE]["config"]["decoding"] = best[PORTABLE]["config"]["decoding"]
    assert changed[PORTABLE] == best[PORTABLE]


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
    tuning = tried(offers, shown.append)
    trials = list(tuning.trials)
    assert [result for result in shown if isinstance(result, Trial)] == trials
    assert [result for result in shown if not isinstance(result, Trial)] == list(tuning.challenges)
    assert [trial.weights for trial in trials[:2]] == ["single", "average"]
    assert {trial.weights for trial in trials[2:]} == {tuning.best.weights}
    # Beam 2 without a penalty is the run's own search, and has been tried.
    searches = [(trial.search.beam_size, trial.search.length_penalty) for trial in trials[2:]]
    assert searches == [(1, 0.0), (2, 1.0), (3, 0.0), (3, 1.0)]
    assert all(trial.seconds > 0 and trial.sentences == len(PAIRS) for trial in trials)
    metrics = MetricsConfig(tokenize="char", lowercase=True)
    [trial] = tried(offers, metrics=metrics, beam_sizes=[], metric=None, sentences=2).trials[:1]
    assert "|case:lc|eff:no|tok:char|" in trial.score.signature
    assert trial.sentences == 2


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
    ],
)
def test_which_trial_wins(trials: list[Trial], best: int) -> None:
    assert best_trial(trials) is trials[best]
    values = trials[best].to_json()
    assert (values["seconds"], values["sentences_per_second"]) == (4.0, 2.5)


def test_greedy_stands_once_and_every_beam_with_every_penalty() -> None:
    diverse = {"algorithm": "diverse", "beam_size": 4, "groups": 2, "diversity": 0.5}
    search = search_config(**diverse, length_penalty=0.3, no_repeat_ngram=3, min_length=2)
    searches = grid(search, [4, 1, 2, 4], [1.0, 0.0])
    assert [(s.algorithm, s.beam_size, s.length_penalty) for s in searches] == [
        ("greedy", 1, 0.3),
        ("beam", 2, 0.0),
        ("beam", 2, 1.0),
        ("beam", 4, 0.0),
        ("beam", 4, 1.0),
    ]
    # Keys of another algorithm are dropped.
    for s in searches:
        assert (s.no_repeat_ngram, s.min_length) == (3, 2)
        assert (s.groups, s.diversity, s.nbest) == (1, 0.0, 1)
