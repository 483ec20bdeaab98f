"""Ranks that fail together say so once."""

import pytest
from torch import distributed as dist

from transformer.common.errors import AnotherRankFailed
from transformer.training.distributed.rendezvous import failing_together


def test_a_rank_that_finds_no_other_says_so_in_one_line() -> None:
    says = "stopped before all ranks had met: Failed to recv, got 0 bytes$"
    with pytest.raises(AnotherRankFailed, match=says) as caught, failing_together():
        raise dist.DistNetworkError("Failed to recv, got 0 bytes\nException raised from recvBytes")
    assert caught.value.code == 1


def test_a_bug_of_one_process_stays_a_bug() -> None:
    with pytest.raises(RuntimeError, match="of mine"), failing_together():
        raise RuntimeError("of mine")
