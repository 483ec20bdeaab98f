"""The tables of results and of ablations, made of what the runs have written."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from omegaconf import OmegaConf

from benchmarks.results import ablations, results
from benchmarks.results.ablations import CHAINS, ROWS, Change, chosen, compared, system, training
from benchmarks.results.results import (
    RESULTS,
    Measured,
    Result,
    columns,
    command,
    measured,
    row,
    spread,
)
from benchmarks.support.records import Records, machine, short
from benchmarks.support.trained import Trained
from tests.system.runs.test_experiments import write_corpus
from transformer.__main__ import main

pytestmark = pytest.mark.thorough

CHANGE = Change("callbacks.ema_decay=0", "Vaswani et al. 2017", average=2)


def test_a_line_of_results_says_what_was_measured(trained: Trained) -> None:
    result = Result("pocket", "pocket", "en-de", "A")
    found = measured(result, 1, trained)
    said = dict(zip(columns(list(found.scores)), row(result, [found]), strict=True))
    [bleu, chrf, _] = trained.scores("test")
    assert said["BLEU"] == f"{bleu['score']:.2f}"
    assert said["BLEU of validation"] == f"{max(score for _, score in trained.validated):.2f}"
    assert said["model"] == "2+2, 64, 128"
    assert (said["seeds"], said["updates"]) == ("1", "4")
    assert said["machine"] == machine(1)
    assert said["commit"] == short(trained.commit)
    assert found.signatures == {"BLEU": bleu["signature"], "chrF2": chrf["signature"]}
    commit = "0123456789" * 4
    assert (short(commit), short(f"{commit} {commit}+")) == ("0123456", "0123456 0123456+")
    # A changed experiment has a name and a line of its own.
    result = Result("pocket", None, "en-de", "B", "loss=label_smoothed")
    assert len({one.name for one in RESULTS}) == len(RESULTS)
    assert result.name == "pocket-en-de-label_smoothed"
    run = result.run(Path("data"), Path("runs"), seed=2)
    assert run.overrides[:2] == ("experiment=pocket", "loss=label_smoothed")
    assert "data.root=FOLDER" not in command(run)
    assert row(result, [measured(result, 2, trained)])[0] == "pocket loss=label_smoothed"


def test_the_metric_that_chooses_comes_first(trained: Trained, tmp_path: Path) -> None:
    other = replace(trained, folder=tmp_path / "run")
    shutil.copytree(trained.folder, other.folder)
    shutil.copy(f"{trained.folder}.calls.jsonl", f"{other.folder}.calls.jsonl")
    config = OmegaConf.load(other.folder / "config.yaml")
    config.metrics.update({"choose": "ter", "validation": ["ter", "chrf"]})
    OmegaConf.save(config, other.folder / "config.yaml")
    table = other.folder / "metrics.csv"
    table.write_text(table.read_text().replace("val/bleu", "val/ter"))
    result = Result("g2p", "g2p", "dut", "P")
    found = measured(result, 1, other)
    assert list(found.scores) == ["TER", "chrF2"]
    assert found.validation == min(score for _, score in trained.validated)
    assert columns(list(found.scores))[4:7] == ("TER", "chrF2", "TER of validation")
    run = result.run(Path("data"), Path("runs"), seed=3)
    assert run.overrides[1:] == ("data.root=data/g2p", "data.lang=dut", "seed=3")


def test_seeds_make_one_line_and_tell_where_they_differ(trained: Trained) -> None:
    result = Result("pocket", "pocket", "en-de", "B")
    first = measured(result, 1, trained)
    bleu, chrf = first.scores.values()
    better = {"BLEU": bleu + 2, "chrF2": chrf}
    second = replace(first, seed=2, scores=better, machine="another", hours=3.0)
    said = dict(zip(columns(["BLEU", "chrF2"]), row(result, [first, second]), strict=True))
    assert said["BLEU"] == f"{bleu + 1:.2f} ± 1.41"
    assert (said["seeds"], said["machine"]) == ("2", f"{machine(1)}, another")
    assert said["model"] == "2+2, 64, 128"
    assert spread([39.0]) == "39.00"
    assert spread([39.0, 40.0, 41.0]) == "40.00 ± 1.00"


def test_records_outlive_the_trainings(trained: Trained, tmp_path: Path) -> None:
    first = measured(Result("pocket", "pocket", "en-de", "B"), 1, trained)
    second = replace(first, seed=2)
    again = replace(first, validation=50.0)
    records = Records(tmp_path / "records.jsonl", Measured, key=("name", "seed"))
    assert records.read() == []
    for record in (second, first, again):
        records.keep(record)
    assert records.read() == [again, second]
    with open(records.path, "a") as file:
        file.write('{"name": "x"}\n')
    with pytest.raises(SystemExit, match=r"records\.jsonl, line 3: .*missing"):
        records.read()


def test_scores_of_two_kinds_of_text_are_in_two_tables() -> None:
    [raw, *_], [tokenized, *_] = (
        [one for one in RESULTS if one.text == text] for text in ("B", "A")
    )
    scored = {raw: "case:mixed|tok:13a", tokenized: "case:lc|tok:none"}
    records = [
        Measured(
            result.name,
            1,
            "c" * 40,
            "m",
            "train",
            "2+2, 64, 128",
            1,
            4,
            0.1,
            3.0,
            scores={"BLEU": 2.0, "chrF2": 1.0},
            signatures={"BLEU": signature, "chrF2": "chrF2"},
        )
        for result, signature in scored.items()
    ]
    parts = "\n".join(results.table(records)).split("\n**")
    assert [part.count("\n| ") for part in parts] == [3, 3]
    for part, signature in zip(parts, scored.values(), strict=True):
        assert part.rstrip().endswith(f"BLEU `{signature}`, chrF2 `chrF2`")


@pytest.mark.parametrize("module", [ablations, results])
def test_what_is_recorded_is_on_the_page(module: ModuleType) -> None:
    table = "\n".join(module.table(module.RECORDS.read()))
    assert table in module.PAGE.read_text(encoding="utf-8")


def test_an_average_of_checkpoints_is_compared_with_the_run(trained: Trained) -> None:
    mean = system(CHANGE, trained.run)
    assert mean == trained.run / "checkpoints" / "average-2.ckpt"
    made = mean.stat().st_mtime_ns
    assert system(CHANGE, trained.run).stat().st_mtime_ns == made
    first, second = compared([trained.run, mean])
    assert first["difference"] is None
    assert second["difference"] == pytest.approx(second["score"] - first["score"])


def test_a_line_of_ablations_has_the_less_sure_of_two_tests(trained: Trained) -> None:
    tested = {"difference": -1.25, "p_bootstrap": 0.04, "p_randomization": 0.031}
    score = {"score": 38.5, "signature": "nrefs:1"}
    found = ablations.measured(CHANGE, trained, score | tested, 4)
    said = dict(zip(ablations.COLUMNS, ablations.row(CHANGE, found), strict=True))
    assert said["changed"] == "`callbacks.ema_decay=0`"
    assert (said["BLEU"], said["difference"], said["p"]) == ("38.50", "-1.25", "0.040")
    base = ablations.measured(CHANGE, trained, score | {"difference": None}, 4)
    said = dict(zip(ablations.COLUMNS, ablations.row(CHANGE, base), strict=True))
    assert (said["BLEU"], said["difference"], said["p"]) == ("38.50", "", "")


def test_rows_have_names_and_what_they_learn_from_is_chosen() -> None:
    assert len({change.name for change in ROWS}) == len(ROWS)
    averaged = [change for change in ROWS if change.average]
    assert [change.folder for change in averaged] == ["callbacks.ema_decay-0"]
    assert [change.name for change in chosen(["recipe-distill"])] == [
        "baseline",
        "seed-2",
        "seed-3",
        "recipe-distill",
    ]
    assert chosen([]) == []


@pytest.mark.parametrize("change", CHAINS, ids=lambda change: change.name)
def test_a_chain_ends_with_the_training_that_is_compared(
    change: Change, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_corpus(tmp_path / "corpus", "multi30k", "en", "de")
    folder = tmp_path / "runs"
    folder.mkdir()
    for seed in ("baseline", "seed-2", "seed-3"):
        (folder / seed).symlink_to(trained.folder)
    _, _, *arguments = training(change, folder, 40, data).call
    assert main(["recipe", *arguments, "dry_run=true"]) == 0
    stages = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    number = int(change.last.partition("_")[0]) + 1
    assert stages[-2:] == [f"# {change.last} (new)", f"# {number:02}_evaluate (new)"]
