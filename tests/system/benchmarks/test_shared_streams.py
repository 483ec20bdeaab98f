"""The benchmark of streams counts what ranks encode: together as much as one rank does."""

import sys
from pathlib import Path

import pytest

from benchmarks.data import shared_streams

pytestmark = pytest.mark.thorough


def test_ranks_encode_no_more_than_a_buffer_each_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--pairs", "4000", "--buffer", "100", "--batches", "16"]
    monkeypatch.setattr(sys, "argv", ["shared_streams.py", *sizes, "--folder", str(tmp_path)])
    shared_streams.main()
    counts, times = capsys.readouterr().out.split("\n\n")
    for line in counts.splitlines()[2:]:
        ranks, trained, encoded, most = (int(n.replace(",", "")) for n in line[2:-2].split(" | "))
        assert 0 < trained <= encoded <= trained + 100 * ranks
        assert most <= encoded <= ranks * most
    for line in times.splitlines()[2:]:
        encodes, skips = map(float, line[2:-2].split(" | ")[1:])
        assert encodes > 10 * skips
