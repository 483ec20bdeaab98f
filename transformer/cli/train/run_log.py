"""``train.log`` and stderr of a run."""

import logging
import sys
from pathlib import Path

from transformer.common.files import open_unlinked

LOG = "train.log"


def _marked(record: logging.LogRecord) -> bool:
    """Mark warnings and errors."""
    record.mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
    return True


def log_to(file: Path, rank: int) -> None:
    """Log to stderr and to the file; ranks other than 0 log warnings to stderr alone."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if rank == 0:
        handlers.append(logging.StreamHandler(open_unlinked(file, "a", encoding="utf-8")))
    for handler in handlers:
        handler.addFilter(_marked)
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING,
        format=f"%(asctime)s {f'rank {rank}: ' if rank else ''}%(mark)s%(message)s",
        datefmt="%H:%M:%S",
        handlers=handlers,
        force=True,
    )
    logging.captureWarnings(True)
