"""The experiments reach what README.md and docs/ say.

    pytest -m slow tests/system/runs/test_pocket.py

Each trains for four to ten minutes.
"""

import json
from pathlib import Path

import pytest

from tests.helpers.runs.runs import PROJECT, run

pytestmark = pytest.mark.slow


def trained(folder: Path, *overrides: str) -> dict[str, dict[str, float]]:
    """Train; the scores of every test split, by name."""
    command = [str(PROJECT / "train.py"), *overrides, "hydra.run.dir=run"]
    done = run(*command, folder=folder, timeout=2400)
    assert done.returncode == 0, done.stderr.decode()
    return {
        file.stem: {score["name"]: score["score"] for score in json.loads(file.read_text())}
        for file in (folder / "run").glob("test*.json")
    }


def test_the_default_reaches_its_bleu(tmp_path: Path) -> None:
    scores = trained(tmp_path)
    assert scores["test"]["BLEU"] >= 90
    assert scores["test_novel"]["BLEU"] >= 80


def test_a_guided_head_aligns(tmp_path: Path) -> None:
    assert trained(tmp_path, "experiment=pocket_aligned")["test"]["BLEU"] >= 90
    done = run(
        *("-m", "transformer", "evaluate", "checkpoint=run", "alignment=true"),
        folder=tmp_path,
        timeout=600,
    )
    scores = {score["name"]: score["score"] for score in json.loads(done.stdout)}
    assert scores["AER"] <= 0.10


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_tagger_is_nearly_always_right(tmp_path: Path, language: str) -> None:
    other = {"en": "de", "de": "en"}[language]
    sides = [f"data.source={language}", f"data.target={other}"]
    scores = trained(tmp_path, "experiment=pocket_tagging", *sides)
    assert scores["test"]["accuracy"] >= 99


def test_the_language_model_beats_counting(tmp_path: Path) -> None:
    scores = trained(tmp_path, "experiment=pocket_lm")
    # A 5-gram model (interpolated Kneser-Ney) has 19.0 and 22.4.
    assert scores["test"]["perplexity"] < 19.0
    assert scores["test_novel"]["perplexity"] < 22.4
