"""``consolidate``: one file of a checkpoint whose weights lie in several."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from transformer.cli.compose import compose_config
from transformer.cli.exit import exit_code_of


def main(arguments: Sequence[str]) -> int:
    """Consolidate; returns the exit code."""
    return exit_code_of(lambda: _consolidate(compose_config("consolidate", arguments)))


def _consolidate(config: DictConfig) -> None:
    from transformer.model.checkpoint import find_checkpoint, read_payload, write_payload

    output = Path(config.output)
    write_payload(read_payload(find_checkpoint(Path(config.checkpoint))), output)
    print(output)
