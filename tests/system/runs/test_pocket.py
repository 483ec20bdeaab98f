"""The experiments reach what README.md and docs/ say.

    pytest -m slow tests/system/runs/test_pocket.py

Each trains for four to ten minutes.
"""

import json
from pathlib import Path

import pytest

from tests.helpers.runs.runs import PROJECT, run

TAGGING = "experiment=pocket_tagging"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "metric", "limits"),
    [
        ([], "BLEU", {"test": 90, "test_novel": 80}),
        (["experiment=pocket_aligned"], "BLEU", {"test": 90}),
        ([TAGGING, "data.source=en", "data.target=de"], "accuracy", {"test": 99}),
        ([TAGGING, "data.source=de", "data.target=en"], "accuracy", {"test": 99}),
        # A 5-gram model (interpolated Kneser-Ney) has 19.0 and 22.4.
        (["experiment=pocket_lm"], "perplexity", {"test": 19.0, "test_novel": 22.4}),
    ],
)
def test_a_model_is_as_good_as_its_page_says(
    overrides: list[str], metric: str, limits: dict[str, float], tmp_path: Path
) -> None:
    command = [str(PROJECT / "train.py"), *overrides, "hydra.run.dir=run"]
    done = run(*command, folder=tmp_path, timeout=2400)
    assert done.returncode == 0, done.stderr.decode()
    for name, limit in limits.items():
        rows = json.loads((tmp_path / "run" / f"{name}.json").read_text())
        [score] = [row["score"] for row in rows if row["name"] == metric]
        assert score < limit if metric == "perplexity" else score >= limit
    if "experiment=pocket_aligned" in overrides:
        call = ("-m", "transformer", "evaluate", "checkpoint=run", "alignment=true")
        done = run(*call, folder=tmp_path, timeout=600)
        scores = {score["name"]: score["score"] for score in json.loads(done.stdout)}
        assert scores["AER"] <= 0.10
