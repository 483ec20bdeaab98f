"""Ranks that this process has started do not outlive it, nor keep it."""

import sys
import time

import pytest

from transformer.common.errors import AnotherRankFailed
from transformer.training import launcher
from transformer.training.distributed.launcher import Ranks


@pytest.mark.parametrize(
    ("does", "said"),
    [("import time; time.sleep(600)", -9), ("raise SystemExit(3)", 3), ("pass", None)],
)
def test_a_rank_that_hangs_after_the_end_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, does: str, said: int | None
) -> None:
    monkeypatch.setattr(launcher, "_LONG_GRACE", 0.5 if said == -9 else 400.0)
    began = time.monotonic()
    with Ranks([sys.executable, "-S", "-c", does]) as ranks:
        ranks.start(2, {"NODE_RANK": "0"})
    assert time.monotonic() - began < 200
    told = [] if said is None else [f"rank 1 has ended with {said}, after all was done"]
    assert [record.message for record in caplog.records] == told


@pytest.mark.parametrize(
    ("does", "code", "says"),
    [
        ("raise SystemExit(2)", 2, "stopped, since rank 1 has ended with 2"),
        ("raise TypeError", 1, "stopped, since rank 1 has ended with 1"),
        ("import os; os.kill(os.getpid(), 9)", 1, "rank 1 was killed by SIGKILL; give the command"),
        ("import os; os.kill(os.getpid(), 40)", 1, "rank 1 was killed by signal 40; give the"),
    ],
)
def test_a_rank_that_is_lost_is_named(does: str, code: int, says: str) -> None:
    with (
        pytest.raises(AnotherRankFailed, match=says) as caught,
        Ranks([sys.executable, "-S", "-c", does]) as ranks,
    ):
        ranks.start(2, {"NODE_RANK": "0"})
        ranks.processes[0].wait()
        raise RuntimeError("Connection closed by peer")
    assert caught.value.code == code
