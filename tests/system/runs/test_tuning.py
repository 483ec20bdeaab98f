"""A run is tuned on validation, translates so from then on, and forgets it when it goes on."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs.runs import verb

pytestmark = pytest.mark.thorough

GRID = ("beam_sizes=[1,2]", "length_penalties=[0.0,1.0]")
TEXT = b"alpha beta gamma\ndelta alpha\n"


@pytest.fixture(scope="module")
def tuned(home: Path) -> tuple[Path, dict[str, str], dict[str, Any], str]:
    """A copy of the run that has been tuned, what was there before, and what was said."""
    folder = shutil.copytree(home / "run", home / "tuned")
    # Until it says words, with an average that stays behind: other weights are surely better.
    train(home, "checkpoint=tuned", "trainer.max_steps=130", "callbacks.ema_decay=0.9999")
    before = digests(folder)
    # Nothing may read the test set.
    hidden = [(home / f"test.{side}") for side in ("src", "tgt")]
    for file in hidden:
        file.rename(file.with_suffix(".hidden" + file.suffix))
    try:
        code, stdout, stderr = verb("tune", "checkpoint=tuned", "metric=bleu", *GRID, home=home)
    finally:
        for file in hidden:
            file.with_suffix(".hidden" + file.suffix).rename(file)
    assert code == 0, stderr
    return folder, before, json.loads(stdout), stderr


def train(home: Path, *arguments: str) -> None:
    code, _, stderr = verb("train", *arguments, home=home)
    assert code == 0, stderr


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_one_file_is_new_and_the_table_tells_score_and_cost(tuned: Any) -> None:
    folder, before, report, stderr = tuned
    after = digests(folder)
    assert report["checkpoint"] == "tuned/checkpoints/tuned.ckpt"
    assert after.pop("checkpoints/tuned.ckpt")
    assert after == before
    trials = report["trials"]
    # The run kept a moving average, and validated with a beam of two.
    assert [trial["weights"] for trial in trials[:3]] == ["ema", "single", "average"]
    assert report["before"] == trials[0]
    assert report["best"] in trials
    best = report["best"]["score"]
    assert best["score"] > max(1, report["before"]["score"]["score"])
    assert best["name"] == "BLEU" and "version:" in best["signature"]
    assert all(trial["seconds"] > 0 and trial["sentences_per_second"] > 0 for trial in trials)
    head, *rows = stderr.strip().split("\n")
    assert head.split() == ["weights", "algorithm", "beam", "penalty", *head.split()[4:]]
    assert head.split()[4:] == ["BLEU", "sentences", "seconds", "sentences/s"]
    # A line for each test, and two of what is written.
    assert len(rows) == len(trials) + len(report["tests"]) + 2
    # The best weights, then the best of all, are tested against the run's own.
    weights, search = report["tests"]
    scores = [trial["score"]["score"] for trial in trials]
    tested = [test["other"]["score"]["score"] for test in report["tests"]]
    assert tested == [max(scores[:3]), max(scores)]
    assert weights["replaces"] and weights["other"]["weights"] == "single"
    assert report["best"] == search["other" if search["replaces"] else "own"]
    assert rows[0].split()[:3] == ["ema", "beam", "2"]


def test_verbs_take_it_from_then_on(tuned: Any, home: Path) -> None:
    _, _, report, _ = tuned
    code, stdout, stderr = verb(*("evaluate", "checkpoint=tuned", "split=validation"), home=home)
    assert code == 0, stderr
    assert json.loads(stdout)[0] == report["best"]["score"]
    said = [
        verb("translate", f"checkpoint={path}", home=home, stdin=TEXT)[1]
        for path in ("tuned", "tuned/checkpoints/tuned.ckpt")
    ]
    assert said[0] == said[1]
