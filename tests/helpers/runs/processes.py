"""Runs and verbs in processes that can be killed, forked in a moment from a server with imports."""

import gc
import multiprocessing
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import transformer
from tests.helpers.data.text import write_parallel
from transformer.cli.config import compose_config, run_settings
from transformer.settings.run import RunConfig

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "pytest",  # a child imports the main module of its parent
        "sacrebleu.tokenizers.tokenizer_13a",
        *(module.name for module in pkgutil.walk_packages(transformer.__path__, "transformer.")),
    ]
)

PROJECT = Path(__file__).resolve().parents[3]
_MOST = 240
"""Seconds until a process counts as hung."""

TINY = [
    "report=none",
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
    for seed, (split, count) in enumerate((("train", 120), ("validation", 6), ("test", 4))):
        write_parallel(folder, split, count, seed, list)
    return overrides_in(str(folder))


def overrides_in(folder: str) -> list[str]:
    """The same, of a corpus that lies in the folder."""
    splits = ("train", "validation", "test")
    files = [f"data.{split}=[{folder}/{split}.src,{folder}/{split}.tgt]" for split in splits]
    own = ["data=files", "data.source=src", "data.target=tgt", *files, f"data.cache={folder}/cache"]
    return [*own, *TINY]


def tiny_config(folder: Path, *overrides: str) -> RunConfig:
    """The settings of such a run."""
    return run_settings(compose_config("train", [*tiny_overrides(folder), *overrides]))


def start(config: RunConfig, folder: Path, fault: Callable[[], None] | None = None) -> BaseProcess:
    """Begin the run in the folder, or go on with it; with a fault to be planted first."""
    process = FORKS.Process(target=_train, args=(config, folder, fault), daemon=False)
    process.start()
    return process


def finish(
    config: RunConfig, folder: Path, fault: Callable[[], None] | None = None, code: int = 0
) -> float:
    """Begin or go on, to the end or the fault; returns the seconds it took."""
    begun = time.monotonic()
    assert exit_code(start(config, folder, fault)) == code, (folder / "said").read_text()
    return time.monotonic() - begun


def _train(config: RunConfig, folder: Path, fault: Callable[[], None] | None) -> None:
    import logging

    from transformer.cli.exit import run_to_exit_code
    from transformer.runs.train import train

    prepare(folder)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    if fault is not None:
        fault()
    there = any((folder / "checkpoints").glob("[lp]*.ckpt"))
    config = replace(config, checkpoint=folder if there else None)
    sys.exit(run_to_exit_code(lambda: train(config, folder) and None))


def be_like_new() -> None:
    """Let a forked process be like one that Python has just started."""
    # Else the processes that load data would each have a server of their own.
    multiprocessing.set_start_method("fork", force=True)
    torch.set_num_threads(1)
    # A collection would copy the pages of all that is imported.
    gc.freeze()


def prepare(folder: Path) -> None:
    """Let a forked process be like a new one, and write what it says to a file."""
    be_like_new()
    folder.mkdir(parents=True, exist_ok=True)
    said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(said, 1)
    os.dup2(said, 2)


def call(arguments: Sequence[str], home: Path, fault: Callable[[], None] | None = None) -> int:
    """Run ``python train.py …`` in a folder; what it says is added to the file ``said`` there."""
    process = FORKS.Process(target=_call, args=(list(arguments), home, fault), daemon=False)
    process.start()
    return exit_code(process)


@dataclass(frozen=True)
class Verb:
    """A verb that runs in a process of its own; its streams are files in a folder."""

    process: BaseProcess
    folder: TemporaryDirectory[str]

    def ended(self, most: float = _MOST) -> tuple[int, str, str]:
        """Wait for its end; returns exit code, stdout and stderr."""
        with self.folder as folder:
            code = exit_code(self.process, most)
            out, err = (Path(folder, name).read_bytes().decode() for name in ("stdout", "stderr"))
            return code, out, err


def start_verb(
    arguments: Sequence[str],
    home: Path,
    stdin: bytes = b"",
    fault: Callable[[], None] | None = None,
    **environment: str,
) -> Verb:
    """Start ``transformer VERB …`` in a folder; with a fault to be planted first."""
    folder = TemporaryDirectory()
    files = [Path(folder.name, name) for name in ("stdin", "stdout", "stderr")]
    files[0].write_bytes(stdin)
    whole = {**os.environ, "PYTHONPATH": str(PROJECT), **environment}
    process = FORKS.Process(
        target=call_verb_here, args=(list(arguments), home, files, whole, fault), daemon=False
    )
    process.start()
    return Verb(process, folder)


def exit_code(process: BaseProcess, most: float = _MOST) -> int:
    """Wait for a process to end; one that hangs is killed, and its code is that of SIGKILL."""
    process.join(most)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def _call(arguments: list[str], home: Path, fault: Callable[[], None] | None) -> None:
    from transformer.__main__ import main

    prepare(home)
    os.chdir(home)
    sys.argv = ["train.py", *arguments]
    if fault is not None:
        fault()
    sys.exit(main(["train", *arguments]))


def call_verb_here(
    arguments: list[str],
    home: Path,
    streams: Sequence[Path],
    environment: Mapping[str, str],
    fault: Callable[[], None] | None = None,
) -> None:
    """Run a verb in this process, a fork, with files for its standard streams; it ends with it."""
    from transformer.__main__ import main

    be_like_new()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(home)
    for handle, file in enumerate(streams):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT, 0o644), handle)
    # What multiprocessing has put there reads another stream.
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.argv = ["transformer", *arguments]
    if fault is not None:
        fault()
    sys.exit(main())
