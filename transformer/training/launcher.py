"""Starts the ranks of this machine under torch's elastic agent, as ``torchrun --standalone`` does.

It does not know what a rank does.
"""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any

from transformer.errors import AnotherRankFailed, Interrupted

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server import ElasticAgent

RUN = "TRANSFORMER_RUN"
"""Name of the environment variable that tells rank 0 the run."""

_TRAIN = ("-m", "transformer", "train")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def count_devices(trainer: Mapping[str, Any]) -> int:
    """Devices of this machine that a run takes, each with a process; 1 where Lightning refuses."""
    devices, accelerator = trainer["devices"], trainer["accelerator"]
    if devices in (1, "1"):
        return 1
    import torch
    from lightning_fabric.accelerators import CPUAccelerator, CUDAAccelerator
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available())
    kind = CPUAccelerator if on_cpu else CUDAAccelerator
    try:
        found = kind.parse_devices(kind.auto_device_count() if devices == "auto" else devices)
    except (MisconfigurationException, ValueError, TypeError):
        return 1
    return found if isinstance(found, int) else len(found or [0])


def run_ranks(count: int, run: str, command: Sequence[str] = _TRAIN) -> None:
    """Start the ranks and wait for them; once one has failed, all end.

    Args:
        count: Ranks.
        run: What rank 0 finds in the environment variable ``RUN``.
        command: What each does, after ``python``.

    Raises:
        AnotherRankFailed: A rank has failed and reported it, or was killed.
        Interrupted: A signal has ended the ranks before any of them could report it.
    """
    from torch.distributed.elastic.agent.server import WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    here = "localhost"
    meeting = RendezvousParameters("c10d", f"{here}:0", uuid.uuid4().hex, 1, 1, local_addr=here)
    with TemporaryDirectory() as logs, _environment(run):
        spec = WorkerSpec(
            *("train", count, get_rendezvous_handler(meeting)),
            entrypoint=sys.executable,
            args=tuple(command),
            max_restarts=0,
            # The other ranks of one that has failed have a moment to notice by themselves.
            monitor_interval=0.5,
            local_addr=here,
        )
        agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=logs))
        with _signals_for_rank_0(agent) as heard:
            failures = agent.run().failures
        spec.rdzv_handler.shutdown()
    if failures:
        _raise({rank: failure.exitcode for rank, failure in failures.items()}, heard)


@contextmanager
def _environment(run: str) -> Iterator[None]:
    """Tell the ranks the run, and the agent to leave signals and messages to us."""
    added = {RUN: run, "TORCHELASTIC_SIGNALS_TO_HANDLE": ""}
    os.environ.update(added)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for name in added:
            del os.environ[name]


@contextmanager
def _signals_for_rank_0(agent: "ElasticAgent") -> Iterator[list[int]]:
    """Hand signals on to rank 0, which agrees with the others; yields those that have come."""
    heard: list[int] = []

    def hand_on(signum: int, frame: FrameType | None) -> None:
        heard.append(signum)
        rank_0 = agent.get_worker_group().workers[0].id
        if rank_0 is None:
            raise _interrupted(signum)
        with suppress(ProcessLookupError):
            os.kill(rank_0, signum)

    previous = {signum: signal.signal(signum, hand_on) for signum in _SIGNALS}
    try:
        yield heard
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _raise(codes: Mapping[int, int], heard: list[int]) -> None:
    """Raise what has ended the ranks, from their exit codes; below zero is the signal of a kill."""
    code = next((code for code in codes.values() if code > 0), 0)
    # The agent ends those that are left with SIGTERM.
    killed = {rank: -code for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM}
    if heard and not code:
        raise _interrupted(heard[-1])
    if code > 1 or not killed:
        raise AnotherRankFailed("", code or 1)
    rank, signum = next(iter(killed.items()))
    name = signal.Signals(signum).name if signum in set(signal.Signals) else f"signal {signum}"
    how = "give the command again with checkpoint=auto, or checkpoint=RUN"
    raise AnotherRankFailed(f"rank {rank} was killed by {name}; {how}", 1)


def _interrupted(signum: int) -> Interrupted:
    says = f"stopped by {signal.Signals(signum).name}; give the same command again"
    return Interrupted(says, 128 + signum)
