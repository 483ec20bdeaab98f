"""Runs of several processes, as a user starts them, and the curves that they log."""

import csv
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

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
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)} | (environment or {}),
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


def planted(fault: Callable[[], None], folder: Path) -> dict[str, str]:
    """Environment of a command whose ranks call a fault of a test module when they start."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os\nif 'LOCAL_RANK' in os.environ:\n"
        f"    from {fault.__module__} import {fault.__name__}\n    {fault.__name__}()\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(PROJECT)])}


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
