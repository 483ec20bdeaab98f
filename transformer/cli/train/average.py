"""``average``: one checkpoint with the mean weights of a run's newest."""

import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.checkpoint.checkpoint import write_payload
from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.training.checkpointing.averaging import average_checkpoints, recent_checkpoints


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Write the mean weights of a run's newest checkpoints."""
    folder = resolve_path(config, "checkpoint")
    paths = recent_checkpoints(folder, resolve_value(config, "last", int | None))
    output = resolve_path(config, "output", folder / "checkpoints" / "average.ckpt")
    write_payload(average_checkpoints(paths), output)
    for path in paths:
        print(f"averaged {path}", file=sys.stderr)
    print(output)
