"""Training runs in processes that can be killed, started in a moment and compared to the last bit.

The processes are forked from one that has imported torch and Lightning already.
"""

import csv
import errno
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from tests.helpers.text import write_parallel
from transformer.cli.compose import compose_config

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["tests.helpers.faults", "transformer.training.run", "datasets", "torch._dynamo"]
)

_TIMES = ("train/tokens_per_second",)
"""Metrics that no two runs have in common."""

TINY = [
    "tokenizer=bpe",
    "tokenizer.vocab_size=285",
    "model.d_model=16",
    "model.num_heads=2",
    "model.ffn_dim=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.dropout=0.1",
    "data.max_length=60",
    "data.batch_tokens=96",
    "optimizer.lr=3e-3",
    "schedule.warmup=5",
    "decoding=greedy",
    "logger.tensorboard=false",
    "trainer.max_steps=30",
    "trainer.val_check_interval=8",
    "trainer.log_every_n_steps=5",
    "callbacks.save_interval=3",
    "callbacks.keep_last=2",
    "callbacks.samples=0",
]


def tiny_overrides(folder: Path) -> list[str]:
    """What makes a run take a second; its corpus is written to the folder."""
    splits = (("train", 120), ("validation", 6), ("test", 4))
    for seed, (split, count) in enumerate(splits):
        write_parallel(folder, split, count, seed, list)
    files = [f"data.{split}=[{folder}/{split}.src,{folder}/{split}.tgt]" for split, _ in splits]
    own = ["data=files", "data.source=src", "data.target=tgt", *files, f"data.cache={folder}/cache"]
    return [*own, *TINY]


def tiny_config(folder: Path, *overrides: str) -> dict[str, Any]:
    """The plain values of such a run."""
    config = compose_config("train", [*tiny_overrides(folder), *overrides])
    values: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    return values


def start(
    values: Mapping[str, Any], folder: Path, fault: Callable[[], None] | None = None
) -> BaseProcess:
    """Begin the run in the folder, or go on with it; with a fault to be planted first."""
    process = _FORKS.Process(target=_train, args=(values, folder, fault), daemon=False)
    process.start()
    return process


def finish(
    values: Mapping[str, Any], folder: Path, fault: Callable[[], None] | None = None, code: int = 0
) -> float:
    """Begin or go on, to the end or the fault; returns the seconds it took."""
    begun = time.monotonic()
    process = start(values, folder, fault)
    process.join(120)
    assert process.exitcode == code, (folder / "said").read_text()
    return time.monotonic() - begun


def _train(values: Mapping[str, Any], folder: Path, fault: Callable[[], None] | None) -> None:
    import logging

    from transformer.cli.exit import exit_code_of
    from transformer.training.config import run_config
    from transformer.training.run import train

    _prepare(folder)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    if fault is not None:
        fault()
    there = any((folder / "checkpoints").glob("[lp]*.ckpt"))
    config = run_config({**values, "checkpoint": str(folder) if there else None})
    sys.exit(exit_code_of(lambda: train(config, folder) and None))


def _prepare(folder: Path) -> None:
    """Let a forked process be like a new one, and write what it says to a file."""
    # Else the processes that load data would each have a server of their own.
    multiprocessing.set_start_method("fork", force=True)
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(said, 1)
    os.dup2(said, 2)


def outcome(folder: Path) -> dict[str, Any]:
    """All that two runs must have in common: every value of the last checkpoint, and the rows."""
    payload = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    best = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    with open(folder / "metrics.csv", newline="") as file:
        rows = [
            {name: value for name, value in row.items() if name not in _TIMES}
            for row in csv.DictReader(file)
        ]
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    del payload["transformer"]["config"]["checkpoint"]
    payload["loops"] = None
    return {
        "last": payload,
        "best": (best["global_step"], best["state_dict"]),
        "rows": rows,
        "files": [name for name in names if name != "previous.ckpt"],
    }


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two nested values differ; tensors must be equal in every bit."""
    if type(one) is not type(other):
        return [f"{where}: {one!r} != {other!r}"]
    if isinstance(one, Mapping):
        keys = [*one, *(key for key in other if key not in one)]
        return [
            line
            for key in keys
            for line in (
                differences(one[key], other[key], f"{where}/{key}")
                if key in one and key in other
                else [f"{where}/{key} is missing"]
            )
        ]
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{where}: {len(one)} != {len(other)} items"]
        pairs = enumerate(zip(one, other, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{where}/{i}")]
    same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if same else [f"{where}: {one!r} != {other!r}"]


class KilledAt:
    """Kills its own process in the n-th call of one of the functions that writing a file takes.

    Args:
        name: ``mkstemp``, ``save``, ``fsync`` or ``replace``.
        call: Which call, from 1.
        part: Of the bytes that ``save`` has written then.
    """

    def __init__(self, name: str, call: int, part: float = 0.5) -> None:
        self.name, self.call, self.part = name, call, part

    def __call__(self) -> None:
        """Plant it."""
        import tempfile

        owners: dict[str, Any] = {"mkstemp": tempfile, "save": torch, "fsync": os, "replace": os}
        owner = owners[self.name]
        function = getattr(owner, self.name)

        def faulty(*args: Any, **keywords: Any) -> Any:
            self.call -= 1
            if self.call == 0:
                if self.name == "save":
                    import io

                    whole = io.BytesIO()
                    function(args[0], whole)
                    args[1].write(whole.getvalue()[: int(self.part * whole.tell())])
                    args[1].flush()
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **keywords)

        setattr(owner, self.name, faulty)


def random_fault(dice: random.Random) -> KilledAt:
    """One of the moments at which a file is being written."""
    name = dice.choice(["mkstemp", "save", "fsync", "replace"])
    return KilledAt(name, dice.randint(1, 15), dice.random())


class DiskFull:
    """Lets some of the calls that write a checkpoint find no space.

    Args:
        first: Of those calls, from 1.
        last: Of those calls.
    """

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.calls = first, last, 0

    def __call__(self) -> None:
        """Plant it."""
        save = torch.save

        def faulty(values: Any, file: Any) -> None:
            self.calls += 1
            if self.first <= self.calls <= self.last:
                file.write(b"half of it")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            save(values, file)

        torch.save = faulty


class SignalAt:
    """Sends its own process signals when a callback's hook is called for the n-th time.

    Args:
        hook: Such as ``on_train_batch_end``, or ``prepare`` and ``test`` for what is around it.
        call: Which call, from 1.
        signals: Sent one after the other.
    """

    def __init__(self, hook: str, call: int, *signals: int) -> None:
        self.hook, self.call, self.signals = hook, call, signals

    def __call__(self) -> None:
        """Plant it."""
        from transformer.data.datamodule import DataModule
        from transformer.training.callbacks import Measure
        from transformer.training.translation import Translation

        around: dict[str, Any] = {
            "prepare": (DataModule, "prepare_data"),
            "test": (Translation, "evaluator"),
        }
        owner, name = around.get(self.hook, (Measure, self.hook))
        function = getattr(owner, name)

        def hooked(*arguments: Any, **keywords: Any) -> Any:
            self.call -= 1
            if self.call == 0:
                for number in self.signals:
                    os.kill(os.getpid(), number)
            return function(*arguments, **keywords)

        setattr(owner, name, hooked)


def call(arguments: Sequence[str], home: Path, fault: Callable[[], None] | None = None) -> int:
    """Run ``python train.py …`` in a folder; what it says is added to the file ``said`` there."""
    process = _FORKS.Process(target=_call, args=(list(arguments), home, fault), daemon=False)
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def _call(arguments: list[str], home: Path, fault: Callable[[], None] | None) -> None:
    from transformer.cli.train import main

    _prepare(home)
    os.chdir(home)
    sys.argv = ["train.py", *arguments]
    if fault is not None:
        fault()
    sys.exit(main(arguments))
