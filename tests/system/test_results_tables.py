"""The tables of results and of ablations: trained once, read from what the runs have written."""

from pathlib import Path

import pytest

from benchmarks.ablations import CHAINS, Change, chosen, compared, system, training
from benchmarks.ablations import COLUMNS as ABLATION_COLUMNS
from benchmarks.ablations import row as ablation_row
from benchmarks.results import COLUMNS, Result, row, spread
from benchmarks.trained import Trained
from tests.helpers.runs import SMALL, corpus_overrides
from tests.system.test_experiments import write_corpus
from transformer.cli import recipe

CHANGE = Change("callbacks.ema_decay=0", "Vaswani et al. 2017", average=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Four updates, two validations, a test."""
    folder = tmp_path_factory.mktemp("results")
    bounds = ["trainer.max_steps=4", "trainer.val_check_interval=2", "callbacks.keep_last=2"]
    where = f"data.cache={folder / 'cache'}"
    languages = ("data.source=en", "data.target=de")
    overrides = (*corpus_overrides(folder), *languages, *SMALL, *bounds, where)
    run = Trained(overrides, folder / "run")
    run.train(threads=1)
    return run


def test_a_finished_run_is_not_repeated(trained: Trained) -> None:
    log = trained.folder.with_name("run.log")
    before = log.read_text()
    trained.train(threads=1)
    assert log.read_text() == before
    assert [updates for updates, _ in trained.validated] == [2, 4]


def test_a_finished_run_of_other_settings_is_refused(trained: Trained) -> None:
    other = Trained((*trained.overrides, "model.dropout=0.2"), trained.folder)
    with pytest.raises(SystemExit, match="is finished, but with another model than is asked for"):
        other.train(threads=1)


def test_a_line_of_results_says_what_was_measured(trained: Trained) -> None:
    cells, signatures = row(Result("pocket", "pocket", "en-de", "A"), [trained])
    said = dict(zip(COLUMNS, cells, strict=True))
    bleu, signature = trained.score("test", "BLEU")
    assert (said["BLEU A"], said["BLEU B"], said["BLEU C"]) == (f"{bleu:.2f}", "", "")
    assert said["model"] == "2+2, 64, 128"
    assert (said["seeds"], said["updates"]) == ("1", "4")
    assert signature in signatures and len(signatures) == 2


def test_an_average_of_checkpoints_is_compared_with_the_run(trained: Trained) -> None:
    mean = system(CHANGE, trained.run)
    assert mean == trained.run / "checkpoints" / "average-2.ckpt"
    made = mean.stat().st_mtime_ns
    assert system(CHANGE, trained.run).stat().st_mtime_ns == made
    first, second = compared([trained.run, mean])
    assert first["difference"] is None
    assert second["difference"] == pytest.approx(second["score"] - first["score"])


def test_a_line_of_ablations_has_the_less_sure_of_two_tests(trained: Trained) -> None:
    tested = {"difference": -1.25, "p_bootstrap": 0.04, "p_randomisation": 0.031}
    line = ablation_row(CHANGE, trained, {"score": 38.5, **tested})
    said = dict(zip(ABLATION_COLUMNS, line, strict=True))
    assert said["changed"] == "`callbacks.ema_decay=0`"
    assert (said["BLEU"], said["difference"], said["p"]) == ("38.50", "-1.25", "0.040")
    alone = ablation_row(CHANGE, trained, {"score": 38.5, "difference": None})
    assert alone[2:5] == ["38.50", "", ""]


def test_who_learns_from_others_has_them_trained() -> None:
    assert [change.name for change in chosen(["recipe-distill"])] == [
        *("recipe", "seed-2", "seed-3", "recipe-distill")
    ]


@pytest.mark.parametrize("change", CHAINS, ids=lambda change: change.name)
def test_what_takes_several_trainings_ends_with_the_one_that_is_compared(
    change: Change, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = write_corpus(tmp_path / "corpus", "multi30k", "en", "de"), tmp_path / "runs"
    folder.mkdir()
    for seed in ("recipe", "seed-2", "seed-3"):
        (folder / seed).symlink_to(trained.folder)
    _, _, *arguments = training(change, folder, 40, data).call
    assert recipe.main([*arguments, "dry_run=true"]) == 0
    stages = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    number = int(change.last.partition("_")[0]) + 1
    assert stages[-2:] == [f"# {change.last} (new)", f"# {number:02}_evaluate (new)"]


def test_several_seeds_are_given_with_their_spread() -> None:
    assert spread([39.0]) == "39.00"
    assert spread([39.0, 40.0, 41.0]) == "40.00 ± 1.00"
