"""``consolidate``: one file of a checkpoint whose weights lie in several."""

from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.checkpoint.archive import write_archive
from transformer.checkpoint.checkpoint import read_payload
from transformer.checkpoint.locate import find_checkpoint
from transformer.cli.config.compose import resolve_path


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Write one file of a checkpoint whose weights lie in several."""
    output = resolve_path(config, "output")
    # Not newer than what it was read from: a last.ckpt does not become the one before.
    write_archive(read_payload(find_checkpoint(resolve_path(config, "checkpoint"))), output)
    print(output)
