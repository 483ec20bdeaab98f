"""The command makes one file of a checkpoint that lies in several."""

from pathlib import Path

import pytest
import torch

from tests.helpers.training.sharded import payload, write
from transformer.__main__ import main
from transformer.checkpoint.archive import SHARDS


def test_one_file_is_written_and_needs_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "run" / "checkpoints")
    output = tmp_path / "one.ckpt"
    assert main(["consolidate", f"checkpoint={tmp_path / 'run'}", f"output={output}"]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    # The files that it maps are gone.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.ckpt", "run"]
    file.unlink()
    written = torch.load(output, weights_only=True)
    assert SHARDS not in written
    assert torch.equal(written["state_dict"]["a"], payload()["state_dict"]["a"])


def test_a_checkpoint_replaced_by_its_one_file_leaves_the_previous_one(tmp_path: Path) -> None:
    write(tmp_path / "checkpoints", 1)
    last = write(tmp_path / "checkpoints", 2)
    before = last.with_name("previous.ckpt").read_bytes()
    assert main(["consolidate", f"checkpoint={last}", f"output={last}"]) == 0
    assert last.with_name("previous.ckpt").read_bytes() == before
