"""The tables of results and of ablations, made of what the runs have written."""

import gzip
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.results import ablations, results
from benchmarks.results.ablations import CHAINS, Change, training
from benchmarks.results.results import (
    Result,
    columns,
    measured,
    row,
)
from benchmarks.support.records import machine, short
from benchmarks.support.trained import Trained
from benchmarks.training import optimizers
from transformer.__main__ import main
from transformer.data.corpora.catalog import PUBLISHED

pytestmark = pytest.mark.thorough


def test_a_line_of_results_says_what_was_measured(trained: Trained) -> None:
    result = Result("pocket", "pocket", "en-de", "A")
    found = measured(result, 1, trained)
    said = dict(zip(columns(list(found.scores)), row(result, [found]), strict=True))
    [bleu, chrf, _] = trained.scores("test")
    assert said["BLEU"] == f"{bleu['score']:.2f}"
    assert said["BLEU of validation"] == f"{max(score for _, score in trained.validated):.2f}"
    assert said["model"] == "2+2, 64, 128"
    assert (said["seeds"], said["updates"]) == ("1 seed (1)", "4")
    assert said["machine"] == machine(1)
    assert said["commit"] == short(trained.commit)
    assert found.signatures == {"BLEU": bleu["signature"], "chrF2": chrf["signature"]}


@pytest.mark.parametrize("module", [ablations, results, optimizers])
def test_what_is_recorded_is_on_the_page(module: ModuleType) -> None:
    table = "\n".join(module.table(module.RECORDS.read()))
    assert table in module.PAGE.read_text(encoding="utf-8")


def test_the_table_of_readme_is_what_is_recorded() -> None:
    table = "\n".join(results.summary(results.RECORDS.read()))
    assert table in results.README.read_text(encoding="utf-8")


def test_several_seeds_are_a_mean_and_one_is_marked(trained: Trained) -> None:
    result = Result("pocket", "pocket", "en-de", "A")
    first = replace(measured(result, 1, trained), scores={"BLEU": 40.0, "chrF2": 64.0})
    third = replace(first, seed=3, scores={"BLEU": 41.0, "chrF2": 64.5})
    names = columns(["BLEU", "chrF2"])
    said = dict(zip(names, row(result, [first, third]), strict=True))
    assert (said["BLEU"], said["seeds"]) == ("40.50 ± 0.71", "2 seeds (1, 3)")
    assert dict(zip(names, row(result, [first]), strict=True))["seeds"] == "1 seed (1)"


@pytest.mark.parametrize("change", CHAINS, ids=lambda change: change.name)
def test_a_chain_ends_with_the_training_that_is_compared(
    change: Change, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "corpus"
    data.mkdir()
    for split in ("train", "validation", "test"):
        for language in ("en", "de"):
            file = data / PUBLISHED["multi30k"].file_name(language, split)
            file.write_bytes(gzip.compress(b"alpha beta\nbeta\n"))
    folder = tmp_path / "runs"
    folder.mkdir()
    for seed in ("baseline", "seed-2", "seed-3"):
        (folder / seed).symlink_to(trained.folder)
    _, _, *arguments = training(change, folder, 40, data).call
    assert main(["recipe", *arguments, "dry_run=true"]) == 0
    stages = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    number = int(change.last.partition("_")[0]) + 1
    assert stages[-2:] == [f"# {change.last} (new)", f"# {number:02}_evaluate (new)"]
