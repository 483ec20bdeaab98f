"""Starts the other ranks of this machine, and sees to it that no rank outlives another's failure.

Ranks that torchrun or SLURM start are theirs to watch. It does not know what a rank does.
"""

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch.distributed as dist
from lightning_fabric.plugins import ClusterEnvironment
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher

from transformer.common.errors import AnotherRankFailed

logger = logging.getLogger(__name__)

_GRACE = 15.0
"""Seconds for a rank to end by itself once another has failed."""

_LONG_GRACE = 60.0
"""The same, where this one has done all its work."""


class Ranks:
    """The other ranks on this machine, where this process is the one that starts them.

    Args:
        command: What starts one; None starts it as this process was started.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self.command = command
        self.processes: list[subprocess.Popen[bytes]] = []
        self._environment: dict[str, str] = {}

    def start(self, count: int, environment: dict[str, str]) -> None:
        """Start ranks 1, 2, …, ``count - 1``; this process is rank 0.

        Args:
            count: All ranks of this machine.
            environment: What all of them must find in theirs, this process too.
        """
        assert self.command is not None
        self._environment = environment
        os.environ.update(environment | {"LOCAL_RANK": "0"})
        self.processes = [
            subprocess.Popen(self.command, env=os.environ | {"LOCAL_RANK": str(rank)})
            for rank in range(1, count)
        ]
        threading.Thread(target=self._watch, args=(self.processes,), daemon=True).start()

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the others; end those that do not end by themselves.

        Raises:
            AnotherRankFailed: In place of what a collective says when a rank is lost.
        """
        processes, self.processes = self.processes, []
        lost = {rank: code for rank, p in enumerate(processes, 1) if (code := p.poll())}
        _end(processes, _LONG_GRACE if kind is None else _GRACE)
        for rank, process in enumerate(processes, 1):
            code = process.wait()
            if code and kind is None:
                logger.error("rank %d has ended with %d, after all was done", rank, code)
        if self._environment and dist.is_initialized():
            dist.destroy_process_group()
        for name in (*self._environment, "LOCAL_RANK") if self._environment else ():
            os.environ.pop(name, None)
        if lost and isinstance(error, RuntimeError):
            rank, code = next(iter(lost.items()))
            raise AnotherRankFailed(_how_it_ended(rank, code), max(code, 1)) from error

    def _watch(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """End everything when a rank has failed and this one does not notice.

        A collective of some backends waits for a lost rank for ever.
        """
        while self.processes:
            for rank, process in enumerate(processes, 1):
                if process.poll():
                    time.sleep(_GRACE)
                    if self.processes:
                        logger.error("rank %d has ended with %d", rank, process.returncode)
                        _end(processes, _GRACE)
                        os._exit(process.returncode if process.returncode > 0 else 1)
            time.sleep(0.2)


def _how_it_ended(rank: int, code: int) -> str:
    if code > 0:
        return f"stopped, since rank {rank} has ended with {code}"
    known = -code in set(signal.Signals)
    name = signal.Signals(-code).name if known else f"signal {-code}"
    return (
        f"rank {rank} was killed by {name}; give the command again with checkpoint=auto, or "
        "checkpoint=RUN"
    )


def _end(processes: Sequence[subprocess.Popen[bytes]], grace: float) -> None:
    """Leave time to end; then kill."""
    deadline = time.monotonic() + grace
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


class RankLauncher(_SubprocessScriptLauncher):
    """Lightning's launcher of the ranks of a machine, with our command and our watch."""

    def __init__(
        self, environment: ClusterEnvironment, processes: int, nodes: int, ranks: Ranks
    ) -> None:
        super().__init__(environment, processes, nodes)
        self.ranks = ranks

    def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start the others, unless they are there, and do this rank's part."""
        cluster = self.cluster_environment
        if self.ranks.command is None:
            return super().launch(function, *args, **kwargs)
        if not cluster.creates_processes_externally:
            environment = {
                "MASTER_ADDR": cluster.main_address,
                "MASTER_PORT": str(cluster.main_port),
                "NODE_RANK": "0",
                "WORLD_SIZE": str(self.num_processes),
            }
            self.ranks.start(self.num_processes, environment)
        kwargs.pop("trainer", None)
        return function(*args, **kwargs)
