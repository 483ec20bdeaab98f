"""What a training command shows on stderr."""

import logging
import sys
from pathlib import Path

from transformer.runs.directory import OnlyNew, log_format


def log_to_stderr(rank: int, log: Path, *, resumed: bool = False) -> None:
    """Log to stderr, ranks other than 0 warnings only; without what the ``log`` of the run has."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(OnlyNew(log, resumed=resumed))
    handler.setFormatter(log_format(rank))
    level = logging.INFO if rank == 0 else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
