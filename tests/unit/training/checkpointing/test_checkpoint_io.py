"""A checkpoint that training outdates is kept, and no longer used."""

import os
from datetime import datetime
from pathlib import Path

import pytest
import torch

from tests.helpers.training.sharded import payload, write
from transformer.checkpoint.archive import SHARDS
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.checkpoint.sharded import SUFFIX
from transformer.training.checkpointing import (
    consolidate,
    set_aside_outdated,
    set_aside_unused,
)


def test_every_outdated_one_is_kept_by_when_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "best.ckpt").touch()
    set_aside_outdated(tmp_path)
    for day in (1, 2):
        tuned = folder / "tuned.ckpt"
        written = datetime(2026, 5, day, 12).timestamp()
        for file in (tuned, tmp_path / "test_2017.json", tmp_path / "test_2017.hyp"):
            file.write_text(str(day))
            os.utime(file, (written, written))
        assert find_checkpoint(tmp_path) == tuned
        set_aside_outdated(tmp_path)
        assert find_checkpoint(tmp_path) == folder / "best.ckpt"
        then = f"2026-05-0{day}_12-00-00"
        assert (folder / f"outdated-tuned-{then}.ckpt").read_text() == str(day)
        for suffix in ("json", "hyp"):
            assert not (tmp_path / f"test_2017.{suffix}").exists()
            assert (tmp_path / f"outdated-test_2017-{then}.{suffix}").read_text() == str(day)


@pytest.mark.parametrize("name", ["best.ckpt", "previous.ckpt"])
def test_the_last_is_kept_where_training_goes_on_from_another(tmp_path: Path, name: str) -> None:
    last = tmp_path / "last.ckpt"
    last.write_text("newest")
    os.utime(last, (datetime(2026, 5, 1, 12).timestamp(),) * 2)
    for resume in (None, last, tmp_path / "." / "last.ckpt"):
        set_aside_unused(tmp_path, resume)
        assert last.exists()
    set_aside_unused(tmp_path, tmp_path / name)
    assert not last.exists()
    assert (tmp_path / "unused-last-2026-05-01_12-00-00.ckpt").read_text() == "newest"
    set_aside_unused(tmp_path, tmp_path / name)


def test_making_one_file_leaves_the_one_before_as_it_is(tmp_path: Path) -> None:
    for seed in (1, 2):
        write(tmp_path, seed)
    consolidate(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "previous.ckpt"]
    for name, seed in (("previous", 1), ("last", 2)):
        read = torch.load(tmp_path / f"{name}.ckpt", weights_only=True)
        assert torch.equal(read["state_dict"]["a"], payload(seed)["state_dict"]["a"])


def test_making_one_file_passes_over_what_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1).rename(tmp_path / "unused-last.ckpt")
    part = next(tmp_path.glob(f"*{SUFFIX}/__1*"))
    part.write_bytes(part.read_bytes()[:-40])
    write(tmp_path, 2)
    consolidate(tmp_path)
    assert SHARDS not in torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert SHARDS in torch.load(tmp_path / "unused-last.ckpt", weights_only=True)
    assert f"{part.parent} do not fit their index" in caplog.text
    assert part.exists()
