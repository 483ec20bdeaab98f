"""Runs of several processes, as a user starts them, and the curves that they log."""

import csv
import logging
import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

from tests.helpers.runs.processes import PROJECT, start_verb
from tests.helpers.runs.runs import SMALL

Curve = dict[tuple[str, int], float]

OF_RANKS = [
    *SMALL,
    "model.d_model=32",
    "model.dropout=0.2",
    "data.batch_tokens=256",
    "decoding=greedy",
    "callbacks.samples=0",
    # trainer=ddp takes bfloat16 where the processor has it.
    "precision=32-true",
]
"""Settings of a small run that one process and several can make alike."""

LOGGED = ("train/loss", "train/padding", "train/grad_norm", "val/loss", "val/bleu", "val/chrf")


def started(
    arguments: Sequence[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """``python ARGUMENTS`` in a process of its own."""
    paths = os.pathsep.join([*(environment or {}).get("PYTHONPATH", "").split(), str(PROJECT)])
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {}) | {"PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[bytes], timeout: float = 240) -> tuple[int, str]:
    """Exit code and stderr; a process that hangs is killed and fails the test."""
    try:
        _, stderr = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, stderr.decode()


def fork_ranks() -> None:
    """Let the launcher fork its ranks, which then need no time for imports."""
    from torch.distributed.elastic.agent import server
    from torch.distributed.elastic.agent.server import local_elastic_agent

    class ForkingAgent(local_elastic_agent.LocalElasticAgent):
        def __init__(self, spec: server.WorkerSpec, *arguments: Any) -> None:
            command = spec.args[2:]
            forked = replace(spec, entrypoint=_rank, args=command)
            super().__init__(forked, *arguments, start_method="fork")

    local_elastic_agent.LocalElasticAgent = ForkingAgent  # type: ignore[misc]
    # torch's end of a forked rank with its parent; a rank has its own.
    torch.multiprocessing.spawn._prctl_pr_set_pdeathsig = lambda signum: None


def _rank(*command: str) -> None:
    from transformer.__main__ import main
    from transformer.cli.train import processes

    # A fork tells torch's launcher what it returns.
    processes.end_rank = lambda: None  # type: ignore[assignment,return-value]
    # As in a new interpreter.
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined]
    logging.disable(logging.NOTSET)
    sys.argv = ["transformer", *command]
    if code := main():
        sys.exit(code)


def torchrun(node: int, nodes: int, processes: int, port: int, *more: str) -> list[str]:
    """One machine's call of torchrun, to be followed by ``-m transformer train …``."""
    return [
        *("-m", "torch.distributed.run", f"--nnodes={nodes}", f"--node-rank={node}"),
        *(f"--nproc-per-node={processes}", "--master-addr=127.0.0.1", f"--master-port={port}"),
        *more,
    ]


def forked_ranks(
    arguments: Sequence[str], home: Path, machines: int = 1
) -> list[tuple[int, str, str]]:
    """Run a verb as two ranks with what torchrun tells them; exit code, stdout, stderr of each."""
    here = 2 // machines
    # The store of torchrun, which outlives its ranks.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = {
        **{"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": str(here), "GROUP_WORLD_SIZE": str(machines)},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)},
        **{"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"},
    }
    places = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank % here), "GROUP_RANK": str(rank // here)}
        for rank in range(2)
    ]
    ranks = [start_verb(arguments, home, **group, **place) for place in places]
    return [rank.ended() for rank in ranks]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def curve(folder: Path) -> Curve:
    """What a run has logged, by name and update."""
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {
        (name, int(row["step"])): float(row[name])
        for row in rows
        for name in LOGGED
        if row.get(name)
    }


def distance(one: Curve, other: Curve) -> float:
    """The largest difference; the curves must have the same points."""
    assert one.keys() == other.keys()
    return max(abs(one[point] - other[point]) for point in one)
