"""``config.yaml`` says what the run is, whatever calls are refused, killed or short of space."""

import os
from pathlib import Path

import pytest

from transformer.checkpoint.run_directory import read_config, saved_config
from transformer.common.errors import InputError
from transformer.settings.run import RunConfig

BEFORE, NOW = RunConfig(seed=1), RunConfig(seed=2)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with saved_config(BEFORE, tmp_path):
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "last.ckpt").write_text("1")
    return tmp_path


@pytest.mark.parametrize("damaged", [False, True])
def test_a_refused_call_changes_nothing(run: Path, damaged: bool) -> None:
    with pytest.raises(InputError, match="refused"), saved_config(NOW, run):
        assert read_config(run) == NOW
        if damaged:
            (run / "checkpoints" / "last.ckpt").rename(run / "checkpoints" / "unused-last.ckpt")
        raise InputError("refused")
    assert read_config(run) == BEFORE


def test_what_has_trained_says_with_what(run: Path) -> None:
    with pytest.raises(InputError, match="diverges"), saved_config(NOW, run):
        file = run / "checkpoints" / "last.ckpt"
        file.with_name("new").write_text("2")
        os.replace(file.with_name("new"), file)
        raise InputError("diverges")
    assert read_config(run) == NOW


def test_a_full_disk_leaves_the_file_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(InputError, match=r"config\.yaml: cannot be written \(No space left on dev"),
        saved_config(NOW, run),
    ):
        pass
    assert read_config(run) == BEFORE
    assert {path.name for path in run.iterdir()} == {"config.yaml", "checkpoints"}
