"""A sweep as a user starts it: trials hand back their validation, and no test set is touched."""

from pathlib import Path

import pytest
import yaml

from tests.helpers.runs.ranks import curve
from tests.helpers.runs.runs import SMALL, corpus_overrides, verb

pytestmark = pytest.mark.thorough

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


def sweep(home: Path, *more: str) -> tuple[int, str]:
    small = [each for each in SMALL if not each.startswith(("optimizer.lr", "model.dropout"))]
    settings = [*corpus_overrides(home), *small, "decoding=greedy", "callbacks.samples=0"]
    length = ("trainer.max_steps=2", "trainer.val_check_interval=1")
    code, _, stderr = verb("train", "--multirun", *settings, *length, *more, home=home)
    return code, stderr


def test_optuna_finds_the_best_validation(home: Path) -> None:
    minimize = ("objective=val/loss", "hydra.sweeper.direction=minimize")
    ranges = ("optimizer.lr=tag(log,interval(5e-4,1e-2))", "model.dropout=interval(0,0.3)")
    code, stderr = sweep(home, "launch=optuna", "hydra.sweeper.n_trials=2", *ranges, *minimize)
    assert code == 0, stderr
    (table,) = (line for line in stderr.splitlines() if line.startswith("job "))
    assert table.split() == ["job", "optimizer.lr", "model.dropout", "val/loss", "folder"]
    (swept,) = (home / "multirun").iterdir()
    found = yaml.safe_load((swept / "optimization_results.yaml").read_text())
    values = []
    for trial in ("0", "1"):
        logged = curve(swept / trial)
        values.append(min(value for (name, _), value in logged.items() if name == "val/loss"))
        assert not list((swept / trial).glob("test.*"))
    assert found["best_value"] == pytest.approx(min(values), abs=1e-6)
    assert set(found["best_params"]) == {"optimizer.lr", "model.dropout"}
