"""What ranks agree on outside of torch's process group.

torch and Lightning find the ranks of torchrun and SLURM, and connect them. They have no message
before there is a process group, for the run directory that rank 0 has named; no group after a
restart by torchrun; no single error line of the rank that has failed first; and no end of a rank
that does not wait for the others.
"""

import atexit
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from transformer.common.errors import AnotherRankFailed, InputError, Interrupted

if TYPE_CHECKING:
    import torch
    from torch.distributed import Store

# Keys of the store.
_FAILED = "failed"
_RUN = "run"

_STORE_TIMEOUT = timedelta(minutes=10)
_GROUP_TIMEOUT = timedelta(minutes=30)
_CAUSE_TIMEOUT = timedelta(seconds=30)
"""How long a rank that has lost a connection waits for the error of another rank."""

_NCCL_ABORT_SECONDS = 10.0


@dataclass(frozen=True)
class Rank:
    """A process of a group of ``ranks``, started by torchrun or SLURM."""

    rank: int
    ranks: int
    address: str
    port: int

    def agreed(self, value: str) -> str:
        """The value of rank 0, on all ranks; raises InputError if rank 0 does not answer."""
        try:
            store = shared_store(self)
            if self.rank == 0:
                store.set(_RUN, value)
            return str(store.get(_RUN).decode())
        except RuntimeError as error:
            raise InputError(
                f"rank {self.rank} cannot reach rank 0 at {self.address}:{self.port}; see its log, "
                "and whether the machines can reach each other"
            ) from error


@cache
def shared_store(rank: Rank) -> "Store":
    """The store of all ranks, empty at each start; torchrun or rank 0 hosts it."""
    from torch.distributed import PrefixStore, TCPStore

    hosts = rank.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store = TCPStore(
        rank.address,
        rank.port,
        world_size=rank.ranks,
        is_master=hosts,
        timeout=_STORE_TIMEOUT,
        wait_for_workers=False,
        multi_tenant=True,
    )
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"transformer/start-{start}", store)


def join_group(device: "torch.device") -> None:
    """Create the process group of ranks that torchrun has started, also after a restart.

    torch's ``env://`` reads the addresses of the processes before the restart: the store of
    torchrun's agent outlives them. Here each start has a part of the store.
    """
    from torch import distributed as dist

    rank = external_rank()
    if rank is None or "TORCHELASTIC_RUN_ID" not in os.environ or dist.is_initialized():
        return
    dist.init_process_group(
        dist.get_default_backend_for_device(device),
        store=shared_store(rank),
        rank=rank.rank,
        world_size=rank.ranks,
        # As Lightning does; that of torch is shorter for NCCL.
        timeout=_GROUP_TIMEOUT,
        device_id=None if device.type == "cpu" else device,
    )


def external_rank() -> Rank | None:
    """The rank of this process in a group started by torchrun or SLURM; None: no group."""
    if "TORCHELASTIC_RUN_ID" not in os.environ and "SLURM_NTASKS" not in os.environ:
        return None
    from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

    for kind in (TorchElasticEnvironment, SLURMEnvironment):
        if kind.detect():
            try:
                environment = kind()
            except RuntimeError as error:
                raise InputError(" ".join(str(error).split())) from error
            ranks = environment.world_size()
            if ranks > 1:
                return Rank(
                    environment.global_rank(),
                    ranks,
                    environment.main_address,
                    environment.main_port,
                )
    return None


def process_rank() -> int:
    """The rank of this process, which torchrun, SLURM or Lightning may have started; else 0."""
    rank = external_rank()
    return int(os.environ.get("LOCAL_RANK", 0)) if rank is None else rank.rank


@contextmanager
def reporting_once(rank: Rank | None) -> Iterator[None]:
    """Let only the first rank that fails report its error; the others raise AnotherRankFailed."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        replacement = None if rank is None else _replacement(rank, error)
        if replacement is None:
            raise
        raise replacement from error


def _replacement(rank: Rank, error: BaseException) -> AnotherRankFailed | None:
    """The replacement of an error on this rank; None: this rank reports the error itself."""
    code = _first_code(rank, error)
    if code is not None:
        return AnotherRankFailed("", code)
    # The launcher ends all ranks once one has ended; this one still has to report.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    reason = _lost_connection(error)
    if reason:
        message = f"rank {rank.rank} has lost the connection to another rank: {reason}"
        return AnotherRankFailed(message, 1)
    if _code(error) == 1:
        traceback.print_exc()
        return AnotherRankFailed("", 1)
    return None


def leave_group(code: int) -> NoReturn:
    """End this rank, which has failed, at once: Python's exit would wait for the other ranks."""
    from torch import distributed as dist

    _flush()
    if dist.get_backend() == "nccl" and dist.get_rank() == 0:
        # The abort may wait, too.
        threading.Timer(_NCCL_ABORT_SECONDS, os._exit, (code,)).start()
        with suppress(RuntimeError):
            dist.distributed_c10d._abort_process_group()
    os._exit(code)


def end_rank() -> NoReturn:
    """End this rank, which is done, without Python's finalization.

    torch keeps the threads of gloo as long as its caches know a sharded tensor. If one of them
    drops its last tensor while Python finalizes, Python before 3.14 aborts the process.
    """
    atexit._run_exitfuncs()
    _flush()
    os._exit(0)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()


def _first_code(rank: Rank, error: BaseException) -> int | None:
    """The exit code of the rank that failed first; None if this rank is the first."""
    from torch import distributed as dist

    # Most errors at the start occur on all ranks, and only rank 0 can remove its directory or
    # requeue its job. The cause of a lost connection is in another rank.
    after_rank_0 = isinstance(error, Interrupted | AnotherRankFailed) or not dist.is_initialized()
    try:
        store = shared_store(rank)
        if (rank.rank > 0 and after_rank_0) or _lost_connection(error):
            with suppress(dist.DistStoreError):
                store.wait([_FAILED], _CAUSE_TIMEOUT)
        first, code = store.compare_set(_FAILED, "", f"{rank.rank} {_code(error)}").split()
        return None if int(first) == rank.rank else int(code)
    except RuntimeError:
        # The process that hosts the store is gone.
        return None


def _code(error: BaseException) -> int:
    """The exit code of an error; 1: it is a bug."""
    if isinstance(error, AnotherRankFailed | Interrupted):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, InputError | OSError) else 1


def _lost_connection(error: BaseException) -> str:
    """The reason if another rank has closed the connection; empty for other errors."""
    from torch import distributed as dist

    if isinstance(error, dist.DistError):
        return str(error).partition("\n")[0]
    # The error of a barrier names the connection in a line further down.
    of_gloo = [line.strip() for line in str(error).splitlines() if "/gloo/" in line]
    if isinstance(error, RuntimeError) and of_gloo:
        return re.sub(r"^\[\S*\] ", "", of_gloo[0]).partition(". ")[0]
    return ""
