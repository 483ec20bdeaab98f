"""A resumed run reads its checkpoint once, in each process that trains."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.helpers.runs.processes import tiny_overrides
from tests.helpers.runs.runs import run
from tests.unit.checkpoint.test_archive import bytes_read

COMMAND = ("-m", "transformer", "train")
PROGRAM = """
from transformer import resumed_config, train
if __name__ == "__main__":
    train(resumed_config("run", {"trainer.max_steps": 2}), "run")
"""
LARGE = ("model.d_model=256", "model.ffn_dim=4096", "callbacks.keep_last=1", "test=false")
MORE = ("checkpoint=run", "trainer.max_steps=2")
RANKS = ("trainer.devices=2", "trainer.accelerator=cpu")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("keys", "resumes", "reads"),
    [
        ((), [(*COMMAND, *MORE), ("-c", PROGRAM)], 1),
        (RANKS, [(*COMMAND, *MORE)], 2),
    ],
)
def test_the_bytes_of_a_checkpoint_are_read_once(
    tmp_path: Path, keys: Sequence[str], resumes: Sequence[Sequence[str]], reads: int
) -> None:
    """Counts what ``read`` gives to a resumed run and its processes, beyond that of a new run.

    The bytes are verified as they are read. Later passes (are the weights finite, the copy into the
    model) go over the mapped file, which is then in memory: they read nothing, and do not count.
    """

    def read(*arguments: str) -> int:
        before = bytes_read()
        ended = run(*arguments, folder=tmp_path)
        assert ended.returncode == 0, ended.stderr.decode()
        return bytes_read() - before

    new = [*tiny_overrides(tmp_path), *LARGE, *keys, "trainer.max_steps=1", "hydra.run.dir=run"]
    without = read(*COMMAND, *new)
    saved = shutil.copytree(tmp_path / "run", tmp_path / "saved")
    size = (saved / "checkpoints" / "last.ckpt").stat().st_size
    for resumed in resumes:
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(saved, tmp_path / "run")
        assert (read(*resumed) - without) / size == pytest.approx(reads, abs=0.3)
