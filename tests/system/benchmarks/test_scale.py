"""The benchmark of large corpora runs, and its figures are of what it says."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.data import scale

pytestmark = pytest.mark.thorough


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads Linux' /proc")
def test_every_stage_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--pairs", "4000", "--tokens", "40000", "trainer.max_steps=1", "data.batch_tokens=512"]
    monkeypatch.setattr(sys, "argv", ["scale.py", *sizes, "--folder", str(tmp_path)])
    scale.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:-1]] == [
        "| generate",
        "| prepare",
        "| train",
        "| batches",
    ]
    stages = json.loads(lines[-1])["stages"]
    for figures in stages.values():
        assert figures["seconds"] > 0
        assert figures["rss"] >= figures["pss"] >= figures["private"] > 10
    pairs = (tmp_path / "train.tsv").read_text().splitlines()
    assert len(pairs) == 4000 and all(line.count("\t") == 1 for line in pairs)
