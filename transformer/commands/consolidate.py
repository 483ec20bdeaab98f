"""``consolidate``: one file of a checkpoint whose weights lie in several."""

from pathlib import Path

from transformer.checkpoint.archive import write_archive
from transformer.checkpoint.checkpoint import read_parts, read_payload
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.settings.commands import ConsolidateConfig


def consolidate(config: ConsolidateConfig) -> Path:
    """Write one file of a checkpoint, and return its path; InputError if it cannot be read."""
    file = find_checkpoint(config.checkpoint)
    payload = read_payload(file, parts=False)
    config.output.parent.mkdir(parents=True, exist_ok=True)
    payload = read_parts(payload, file, scratch=config.output.parent)
    # Not newer than what it was read from: a last.ckpt does not become the one before.
    write_archive(payload, config.output)
    return config.output
