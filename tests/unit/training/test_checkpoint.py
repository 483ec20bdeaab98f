"""A checkpoint that training outdates is kept, and no longer used."""

import os
from datetime import datetime
from pathlib import Path

from transformer.model.checkpoint import find_checkpoint
from transformer.training.checkpoint import set_aside_tuned


def test_every_outdated_one_is_kept_by_when_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "best.ckpt").touch()
    set_aside_tuned(folder)
    for day in (1, 2):
        tuned = folder / "tuned.ckpt"
        tuned.write_text(str(day))
        written = datetime(2026, 5, day, 12).timestamp()
        os.utime(tuned, (written, written))
        assert find_checkpoint(tmp_path) == tuned
        set_aside_tuned(folder)
        assert find_checkpoint(tmp_path) == folder / "best.ckpt"
        assert (folder / f"outdated-tuned-2026-05-0{day}_12-00-00.ckpt").read_text() == str(day)
