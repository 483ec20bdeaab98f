"""``consolidate``: one file of a checkpoint whose weights lie in several."""

from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.cli.config.compose import compose_config, path_of
from transformer.cli.exit import exit_code_of


def main(arguments: Sequence[str]) -> int:
    """Consolidate; returns the exit code."""
    return exit_code_of(lambda: _consolidate(compose_config("consolidate", arguments)))


def _consolidate(config: DictConfig) -> None:
    from transformer.model.checkpoint.archive import write_archive
    from transformer.model.checkpoint.checkpoint import read_payload
    from transformer.model.checkpoint.locate import find_checkpoint

    output = path_of(config, "output")
    # Not newer than what it was read from: a last.ckpt does not become the one before.
    write_archive(read_payload(find_checkpoint(path_of(config, "checkpoint"))), output)
    print(output)
