"""The experiments for a GPU train on a CPU, too, stop at the deadline and go on."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import experiments
from benchmarks.support.trained import Trained
from tests.helpers.runs.runs import SMALL, corpus_overrides
from transformer.checkpoint.run_directory import is_finished
from transformer.cli.config import compose_config


def rehearse(folder: Path, *arguments: str) -> int:
    call = ["--rehearse", "--folder", str(folder), "--processes", "2", *arguments]
    return experiments.main(call)


@pytest.mark.thorough
def test_the_deadline_leaves_experiments_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rehearse(tmp_path, "--deadline", "20") == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(experiments.EXPERIMENTS) == 4
    assert all(line.endswith("no time is left") for line in said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text"]
    for experiment in experiments.EXPERIMENTS:
        # As on a GPU; the text that was made up is there.
        run = experiment.run(tmp_path / "text", tmp_path, 1)
        config: Any = compose_config("train", [*run.overrides, *experiments.ON_GPU])
        assert config.trainer.max_steps == 3000
        assert config.trainer.accelerator == "gpu"
        names = {path.name.split(".")[0] for path in Path(config.data.root).iterdir()}
        assert names == {"train", "val", "test_2016_flickr"}


@pytest.mark.slow
def test_a_run_that_is_stopped_is_gone_on_with(tmp_path: Path) -> None:
    sides = ("data.source=en", "data.target=de", f"data.cache={tmp_path / 'cache'}")
    ends = ("trainer.max_time=00:00:00:40", "trainer.max_steps=-1", "test=false")
    ends += ("schedule=inverse_sqrt",)
    run = Trained((*corpus_overrides(tmp_path), *sides, *SMALL, *ends), tmp_path / "run")
    last = run.folder / "checkpoints" / "last.ckpt"
    for seconds in (20, 40):  # a busy machine may not have begun to train after 20
        if not last.exists():
            run.train(threads=1, until=time.monotonic() + seconds)
    assert not is_finished(run.folder)
    assert last.exists()
    run.train(threads=1)
    assert is_finished(run.folder)
    assert "resuming from" in (tmp_path / "run.log").read_text()


@pytest.mark.slow
def test_each_experiment_is_trained(tmp_path: Path) -> None:
    assert rehearse(tmp_path) == 0
    lines = (tmp_path / "experiments.jsonl").read_text().splitlines()
    assert {json.loads(line)["updates"] for line in lines} == {4}
    assert len(lines) == 4
