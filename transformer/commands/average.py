"""``average``: one checkpoint with the mean weights of a run's newest."""

from pathlib import Path
from typing import NamedTuple

from transformer.checkpoint.averaging import average_checkpoints, recent_checkpoints
from transformer.checkpoint.checkpoint import write_payload
from transformer.settings.commands import AverageConfig


class Average(NamedTuple):
    """The checkpoint with the mean weights, and the checkpoints that were averaged."""

    file: Path
    averaged: list[Path]


def average(config: AverageConfig) -> Average:
    """Write the mean weights of a run's newest checkpoints.

    Raises InputError if the run has fewer checkpoints, or they are of different models.
    """
    paths = recent_checkpoints(config.checkpoint, config.last)
    file = config.output or config.checkpoint / "checkpoints" / "average.ckpt"
    write_payload(average_checkpoints(paths), file)
    return Average(file, paths)
