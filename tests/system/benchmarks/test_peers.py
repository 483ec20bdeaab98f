"""Other toolkits train on our text and subwords, go on after a stop, and are scored as ours are."""

from pathlib import Path

import pytest
import torch

from benchmarks.results import peers, results, wu2021
from benchmarks.results.peers import measured, of_results, table
from benchmarks.support import marian_training
from benchmarks.support.peer import OUTCOME, Peer, Text
from benchmarks.support.trained import Trained
from tests.helpers.runs.runs import SMALL, corpus_overrides

pytestmark = pytest.mark.thorough


def test_marian_trains_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    run = [*corpus_overrides(tmp_path), *SMALL, f"data.cache={tmp_path / 'cache'}"]
    bounds = ["trainer.val_check_interval=2", "marian.warmup=2"]

    def train(name: str, updates: int) -> Peer:
        overrides = (*run, *bounds, f"trainer.max_steps={updates}")
        marian_training.main([str(tmp_path / name), *overrides])
        return Peer(overrides, tmp_path / name, marian_training.__name__)

    whole = train("whole", 4)
    train("stopped", 2)
    (tmp_path / "stopped" / OUTCOME).unlink()
    resumed = train("stopped", 4)
    assert [updates for updates, _ in whole.outcome.validations] == [2, 4]
    assert resumed.outcome == whole.outcome
    states = [
        torch.load(peer.folder / "last.pt", weights_only=True)["model"] for peer in (whole, resumed)
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    hypotheses = (whole.folder / "test.hyp").read_text("utf-8").splitlines()
    scores, _ = Text(run).scores(hypotheses, "test")
    assert scores == whole.outcome.scores


def test_an_unknown_setting_of_marian_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"marian\.rate: no such setting; it has learning_rate"):
        marian_training.main([str(tmp_path / "run"), "marian.rate=1"])


def test_ours_is_a_line_beside_the_others(trained: Trained) -> None:
    ours = measured("ours", "", 1, trained)
    [bleu, chrf, _] = trained.scores("test")
    assert ours.scores == {"BLEU": bleu["score"], "chrF2": chrf["score"]}
    assert ours.updates == 4
    line = next(line for line in table([ours]) if "this framework" in line)
    assert "| 1 seed (1) |" in line


def test_a_run_of_results_is_the_same_line_as_one_of_ours(trained: Trained) -> None:
    result = results.Result("multi30k_tiny", "multi30k", "en-de", "B")
    ours = measured("ours", "", 1, trained)
    taken = of_results(results.measured(result, 1, trained))
    assert {**vars(taken), "minutes": 0} == {**vars(ours), "minutes": 0}
    assert taken.minutes == pytest.approx(ours.minutes, abs=0.2)


@pytest.mark.parametrize("module", [peers, wu2021])
def test_what_is_recorded_is_on_the_page(module: object) -> None:
    lines = module.table(module.RECORDS.read())  # type: ignore[attr-defined]
    assert "\n".join(lines) in module.PAGE.read_text(encoding="utf-8")  # type: ignore[attr-defined]


def test_subwords_are_joined_before_words_are_scored() -> None:
    assert wu2021.words("ein spiel@@ haus aus hol@@") == "ein spielhaus aus hol"
    references = ["ein klei@@ nes haus steht hier ."]
    assert wu2021.bleu_of_words(["ein kleines ha@@ us steht hier ."], [references]) == (
        pytest.approx(100)
    )


def test_a_subword_that_training_lacks_matches_nothing_in_the_metric_of_wu() -> None:
    vocabulary = {"ein", "kleines", "haus", "steht", "hier", "."}
    lines = ["ein kleines haus steht hier ."]
    assert wu2021.fairseq_bleu(lines, lines, vocabulary) == pytest.approx(100)
    # 5, 3, 2 and 1 of 6, 5, 4 and 3 n-grams are right.
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)
    found = wu2021.fairseq_bleu(lines, lines, vocabulary - {"hier"})
    assert found == pytest.approx(expected)
