"""What is tried, in which order, and that the scores are those of the verbs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.metrics import RAW
from tests.helpers.translators import PAIRS
from tests.helpers.tuning_runs import write_run
from transformer.common.errors import InputError
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import score
from transformer.model.checkpoint.checkpoint import PORTABLE, write_payload
from transformer.runs.tuning.candidate_weights import offered_weights, with_search
from transformer.runs.tuning.grid import SweepConfig, sweep
from transformer.runs.tuning.trial import Trial, best_trial


def settings(**changes: Any) -> SweepConfig:
    values: dict[str, Any] = {
        "beam_sizes": [1, 2, 3],
        "length_penalties": [0.0, 1.0],
        "metric": "chrf",
        "sentences": None,
        "batch_tokens": 500,
        "device": torch.device("cpu"),
    }
    return SweepConfig(**(values | changes))


def test_weights_come_first_then_searches_with_the_best_of_them(tmp_path: Path) -> None:
    offers, _ = offered_weights(write_run(tmp_path), ["average"], 5)
    shown: list[Trial] = []
    trials = sweep(offers, settings(), shown.append)
    assert trials == shown
    assert [one.weights for one in trials[:2]] == ["single", "average"]
    chosen = best_trial(trials[:2]).weights
    assert {one.weights for one in trials[2:]} == {chosen}
    # Beam 2 without a penalty is the run's own search, and has been tried.
    assert [(one.search.beam_size, one.search.length_penalty) for one in trials[2:]] == [
        *[(1, 0.0), (2, 1.0)],
        *[(3, 0.0), (3, 1.0)],
    ]
    assert all(one.seconds > 0 and one.sentences == len(PAIRS) for one in trials)


def test_what_is_written_scores_what_the_trial_scored(tmp_path: Path) -> None:
    offers, _ = offered_weights(write_run(tmp_path), ["average"], 5)
    sources, references = zip(*PAIRS, strict=True)
    for trial in sweep(offers, settings(beam_sizes=[1, 3]), lambda trial: None):
        file = tmp_path / "written.ckpt"
        write_payload(with_search(offers[trial.weights], trial.search), file)
        translator = Translator.load(file)
        assert translator.search == trial.search
        texts = [found.text for found in translator.translate(sources)]
        assert score(texts, references, ("chrf",), config=RAW)[0].value == trial.score.value


def test_trials_are_scored_as_the_run_is(tmp_path: Path) -> None:
    offers, _ = offered_weights(write_run(tmp_path), [], 5)
    offers["single"][PORTABLE]["config"]["metrics"] = {"tokenize": "char", "lowercase": True}
    (only,) = sweep(offers, settings(beam_sizes=[], metric="bleu"), lambda trial: None)
    assert "|case:lc|eff:no|tok:char|" in only.score.signature


def test_so_many_sentences(tmp_path: Path) -> None:
    offers, _ = offered_weights(write_run(tmp_path), [], 5)
    (only,) = sweep(offers, settings(beam_sizes=[], sentences=2), lambda trial: None)
    assert only.sentences == 2


def test_an_empty_validation_set_is_refused(tmp_path: Path) -> None:
    offers, _ = offered_weights(write_run(tmp_path), [], 5)
    for side in ("en", "de"):
        (tmp_path / f"validation.{side}").write_text("")
    with pytest.raises(InputError, match="the validation text of the run is empty"):
        sweep(offers, settings(), lambda trial: None)
    with pytest.raises(InputError, match="sentences=0 must be at least 1, or null"):
        sweep(offers, settings(sentences=0), lambda trial: None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"metric": "ter"}, "metric=ter is unknown; choose bleu or chrf"),
        ({"length_penalties": []}, r"length_penalties=\[\] leaves no beam to try"),
    ],
)
def test_refusals(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        settings(**changes)
