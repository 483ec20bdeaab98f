"""The experiments for a GPU train on a CPU, too, stop at the deadline and go on."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import experiments
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
