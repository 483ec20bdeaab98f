"""``average``: one checkpoint with the mean weights of a run's newest."""

import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError


def main(arguments: Sequence[str]) -> int:
    """Average; returns the exit code."""
    return run_to_exit_code(lambda: _average(compose_config("average", arguments)))


def _average(config: DictConfig) -> None:
    from transformer.common.schema import typed_value
    from transformer.model.checkpoint.checkpoint import write_payload
    from transformer.training.checkpointing.averaging import average_checkpoints, recent_checkpoints

    folder = resolve_path(config, "checkpoint")
    if not folder.is_dir():
        raise InputError(f"checkpoint={folder} is not a run directory; give one, checkpoint=RUN")
    paths = recent_checkpoints(folder, typed_value(config.last, int, "last"))
    output = folder / "checkpoints" / "average.ckpt"
    if config.output is not None:
        output = resolve_path(config, "output")
    write_payload(average_checkpoints(paths), output)
    for path in paths:
        print(f"averaged {path}", file=sys.stderr)
    print(output)
