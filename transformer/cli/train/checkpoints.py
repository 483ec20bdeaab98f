"""``average`` and ``consolidate``: one checkpoint of several files."""

import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.model.checkpoint.archive import write_archive
from transformer.model.checkpoint.checkpoint import read_payload, write_payload
from transformer.model.checkpoint.locate import find_checkpoint
from transformer.training.checkpointing.averaging import average_checkpoints, recent_checkpoints


def average(config: DictConfig, _: Sequence[str]) -> None:
    """Write the mean weights of a run's newest checkpoints."""
    folder = resolve_path(config, "checkpoint")
    paths = recent_checkpoints(folder, resolve_value(config, "last", int | None))
    output = resolve_path(config, "output", folder / "checkpoints" / "average.ckpt")
    write_payload(average_checkpoints(paths), output)
    for path in paths:
        print(f"averaged {path}", file=sys.stderr)
    print(output)


def consolidate(config: DictConfig, _: Sequence[str]) -> None:
    """Write one file of a checkpoint whose weights lie in several."""
    output = resolve_path(config, "output")
    # Not newer than what it was read from: a last.ckpt does not become the one before.
    write_archive(read_payload(find_checkpoint(resolve_path(config, "checkpoint"))), output)
    print(output)
