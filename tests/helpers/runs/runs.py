"""Small training runs for system tests."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.helpers.data.text import write_parallel
from tests.helpers.runs.processes import PROJECT, start_verb
from transformer.cli.config import compose_config, run_settings
from transformer.settings.run import RunConfig

SMALL = [
    "tokenizer=bpe",
    "tokenizer.vocab_size=310",
    "model.d_model=64",
    "model.ffn_dim=128",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "model.dropout=0.0",
    "loss.label_smoothing=0.0",
    "data.batch_tokens=1024",
    "optimizer.lr=3e-3",
    "schedule.warmup=50",
    "logger.tensorboard=false",
]


def corpus_overrides(folder: Path, turn: Callable[[list[str]], list[str]] = list) -> list[str]:
    """Write a corpus of phrases and say where it lies, as a user would."""
    files = {
        split: write_parallel(folder, split, count, seed, turn)
        for seed, (split, count) in enumerate((("train", 2000), ("validation", 40), ("test", 40)))
    }
    overrides = [f"data.{split}=[{','.join(paths)}]" for split, paths in files.items()]
    return ["data=files", "data.source=src", "data.target=tgt", *overrides]


def composed(overrides: list[str], cache: Path) -> RunConfig:
    """The typed config of a run."""
    config = compose_config("train", [*overrides, f"data.cache={cache}"])
    return run_settings(config)


def run(
    *arguments: str, stdin: bytes = b"", folder: Path, timeout: int = 300
) -> subprocess.CompletedProcess[bytes]:
    """Run ``python …`` as a user does, in ``folder``."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        capture_output=True,
        cwd=folder,
        env=environment,
        timeout=timeout,
        check=False,
    )


def verb(
    name: str, *arguments: str, home: Path, stdin: bytes = b"", **environment: str
) -> tuple[int, str, str]:
    """Call a verb in ``home``: exit code, stdout, stderr."""
    return start_verb([name, *arguments], home, stdin, **environment).ended()
