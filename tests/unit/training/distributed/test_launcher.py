"""Ranks that this process has started end with each other, and their errors end it."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from transformer.common.errors import AnotherRankFailed, Interrupted
from transformer.training.distributed.launcher import RUN, run_ranks

WAIT = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def short_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a name in its records torch reads the sources of all callers, for seconds in pytest."""
    monkeypatch.setattr(dynamic_rendezvous, "get_method_name", lambda depth=2: "")


RANK = "import os; rank = int(os.environ['RANK'])\n"


def does(code: str) -> tuple[str, ...]:
    return ("-S", "-c", RANK + code)


def test_ranks_find_the_run_and_each_other(tmp_path: Path) -> None:
    writes = (
        f"open(f'{tmp_path}/{{rank}}', 'w').write(os.environ['{RUN}'] + os.environ['WORLD_SIZE'])"
    )
    run_ranks(2, "a run of ", does(writes))
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["a run of 2"] * 2
    assert RUN not in os.environ


@pytest.mark.parametrize(
    ("code", "exits", "says"),
    [
        (f"if rank: raise SystemExit(2)\n{WAIT}", 2, "^$"),
        (f"if rank: os.kill(os.getpid(), 9)\n{WAIT}", 1, "rank 1 was killed by SIGKILL; resume"),
    ],
)
def test_a_rank_that_fails_ends_all(code: str, exits: int, says: str) -> None:
    began = time.monotonic()
    with pytest.raises(AnotherRankFailed, match=says) as caught:
        run_ranks(2, "", does(code))
    assert caught.value.code == exits
    assert time.monotonic() - began < 25


def test_a_signal_reaches_rank_0(tmp_path: Path) -> None:
    listens = (
        "import signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os._exit(138))\n"
        f"open(f'{tmp_path}/{{rank}}', 'w').close()\n"
        "time.sleep(600)"
    )

    def send() -> None:
        while not all((tmp_path / rank).exists() for rank in "01"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=send, daemon=True).start()
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(AnotherRankFailed) as caught:
        run_ranks(2, "", does(listens))
    assert caught.value.code == 138
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_signal_that_ranks_do_not_hear_yet_ends_them() -> None:
    tells = f"if not rank: os.kill(os.getppid(), {signal.SIGTERM:d})\n{WAIT}"
    with pytest.raises(Interrupted, match="stopped by SIGTERM; give the same command") as caught:
        run_ranks(2, "", does(tells))
    assert caught.value.code == 143
