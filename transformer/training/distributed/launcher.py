"""Starts the ranks of this machine by torch's elastic agent, like ``torchrun --standalone``."""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from transformer.common.errors import AnotherRankFailed, Interrupted
from transformer.common.processes import COMMAND, command_line, handling

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server import ElasticAgent

RUN = "TRANSFORMER_RUN"
"""Environment variable with the run for rank 0."""

_TRAIN = ("-m", "transformer", "train")


def count_devices(trainer: Any) -> int:
    """Number of devices for the group ``trainer``; 1 if Lightning rejects the value."""
    devices = trainer.devices
    if devices in (1, "1"):
        return 1
    import torch
    from lightning_fabric.accelerators import CPUAccelerator, CUDAAccelerator
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    on_cpu = trainer.accelerator == "cpu"
    if trainer.accelerator == "auto":
        on_cpu = not torch.cuda.is_available()
    kind = CPUAccelerator if on_cpu else CUDAAccelerator
    try:
        parsed = kind.parse_devices(kind.auto_device_count() if devices == "auto" else devices)
    except (MisconfigurationException, ValueError, TypeError):
        return 1
    if isinstance(parsed, int):
        return parsed
    return len(parsed) if parsed else 1


def run_ranks(count: int, run: str, command: Sequence[str] = _TRAIN) -> None:
    """Start the ranks, each ``python`` with a command, and wait; if one fails, all end."""
    from torch.distributed.elastic.agent.server import WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    rendezvous = RendezvousParameters(
        backend="c10d",
        endpoint="localhost:0",
        run_id=uuid.uuid4().hex,
        min_nodes=1,
        max_nodes=1,
        local_addr="localhost",
    )
    with TemporaryDirectory() as logs, _environment(run):
        spec = WorkerSpec(
            role="train",
            local_world_size=count,
            rdzv_handler=get_rendezvous_handler(rendezvous),
            entrypoint=sys.executable,
            args=tuple(command),
            max_restarts=0,
            # Time for the other ranks to notice a failure by themselves.
            monitor_interval=0.5,
            local_addr="localhost",
        )
        agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=logs))
        received: list[int] = []
        with handling(lambda signum, frame: _forward(signum, agent, received)):
            failures = agent.run().failures
        spec.rdzv_handler.shutdown()
    if failures:
        raise _error({rank: failure.exitcode for rank, failure in failures.items()}, received)


@contextmanager
def _environment(run: str) -> Iterator[None]:
    """Set the run for the ranks, and turn off the signal handlers and messages of the agent."""
    variables = {RUN: run, COMMAND: command_line(), "TORCHELASTIC_SIGNALS_TO_HANDLE": ""}
    os.environ.update(variables)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for name in variables:
            del os.environ[name]


def _forward(signum: int, agent: "ElasticAgent", received: list[int]) -> None:
    """Send a signal on to rank 0, which stops all ranks after an update."""
    received.append(signum)
    rank_0 = agent.get_worker_group().workers[0].id
    if rank_0 is None:
        raise _interrupted(signum)
    with suppress(ProcessLookupError):
        os.kill(rank_0, signum)


def _error(codes: Mapping[int, int], received: list[int]) -> Exception:
    """The error behind the exit codes of the ranks; one below zero is a signal."""
    failed = [code for code in codes.values() if code > 0]
    # The agent ends the remaining ranks with SIGTERM.
    killed = [(rank, -code) for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM]
    if received and not failed:
        return _interrupted(received[-1])
    if failed and (failed[0] > 1 or not killed):
        return AnotherRankFailed("", failed[0])
    if not killed:
        return AnotherRankFailed("", 1)
    rank, signum = killed[0]
    name = signal.Signals(signum).name if signum in set(signal.Signals) else f"signal {signum}"
    advice = "resume with checkpoint=auto, or checkpoint=RUN"
    return AnotherRankFailed(f"rank {rank} was killed by {name}; {advice}", 1)


def _interrupted(signum: int) -> Interrupted:
    name = signal.Signals(signum).name
    return Interrupted(f"stopped by {name}; give the same command again", 128 + signum)
