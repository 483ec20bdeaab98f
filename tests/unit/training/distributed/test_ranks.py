"""Ranks that fail say so once."""

import logging
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from logging.handlers import MemoryHandler
from unittest.mock import Mock

import pytest
from torch import distributed as dist

from tests.helpers.runs.ranks import free_port
from transformer.common.errors import AnotherRankFailed, InputError, Interrupted
from transformer.training.distributed import ranks
from transformer.training.distributed.ranks import (
    Rank,
    leave_group,
    reporting_once,
    shared_store,
)


@pytest.fixture
def index() -> Iterator[Rank]:
    handler = signal.getsignal(signal.SIGTERM)
    yield Rank(0, 1, "127.0.0.1", free_port())
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize("error", [InputError("bad"), Interrupted("stopped", 143)])
def test_the_first_error_is_reported_and_its_code_shared(index: Rank, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), reporting_once(index):
        raise error
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    code = getattr(error, "code", 2)
    second = Rank(0, 1, index.address, index.port)
    for later in (RuntimeError("of mine"), InputError("too"), KeyboardInterrupt()):
        shared_store(index).compare_set("failed", f"0 {code}", f"3 {code}")
        with pytest.raises(AnotherRankFailed, match=r"^$") as caught, reporting_once(second):
            raise later
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (dist.DistNetworkError("Failed to recv, got 0 bytes\nException"), "Failed to recv.*"),
        (
            RuntimeError(
                "Rank 1 reached monitoredBarrier, but received errors from rank 0.\n Original "
                "exception: \n[/pytorch/gloo/transport/tcp/pair.cc:5] Connection closed by peer "
                "[127.0.0.1]:9. This is typical"
            ),
            r"Connection closed by peer \[127.0.0.1\]:9",
        ),
    ],
)
def test_a_lost_connection_is_one_line(
    index: Rank, error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "_CAUSE_TIMEOUT", timedelta(seconds=0.1))
    says = f"^rank 0 has lost the connection to another rank: {reason}$"
    with pytest.raises(AnotherRankFailed, match=says) as caught, reporting_once(index):
        raise error
    assert caught.value.code == 1


def test_a_bug_keeps_its_traceback(index: Rank, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AnotherRankFailed, match=r"^$") as caught, reporting_once(index):
        raise RuntimeError("of mine")
    assert caught.value.code == 1
    assert capsys.readouterr().err.endswith("RuntimeError: of mine\n")
    with pytest.raises(RuntimeError, match="of mine"), reporting_once(None):
        raise RuntimeError("of mine")


def test_a_rank_that_leaves_flushes_its_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    written, handler = StringIO(), MemoryHandler(99)
    handler.setTarget(logging.StreamHandler(written))
    handler.emit(logging.makeLogRecord({"msg": "the last line", "levelno": 20}))
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    monkeypatch.setattr(os, "_exit", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        leave_group(3)
    assert written.getvalue() == "the last line\n"
