"""``train.log`` and stderr of a run; a resumed run does not repeat warnings of its start."""

import logging
import sys
from pathlib import Path

from transformer.common.files import open_unlinked

LOG = "train.log"

_START_LOGGERS = (
    *("transformer.data.modules", "transformer.data.text.training_filters"),
    *("transformer.data.quality", "transformer.data.corpora.holdout"),
    *("transformer.runs.config_warnings", "py.warnings", "pytorch_lightning", "lightning_fabric"),
)
"""Loggers of messages about text and settings, and of warnings of libraries."""


class _OnlyNew(logging.Filter):
    """Marks warnings, and drops lines of the start that the log already has."""

    def __init__(self, known: str) -> None:
        super().__init__()
        lines = (line.partition(" ")[2] for line in known.splitlines())
        self.known = {line.removeprefix("warning: ") for line in lines}

    def filter(self, record: logging.LogRecord) -> bool:
        record.mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        first = record.getMessage().partition("\n")[0]
        return first not in self.known or not record.name.startswith(_START_LOGGERS)


def log_to(file: Path, rank: int, *, resumed: bool = False) -> None:
    """Log to stderr and to the file; ranks other than 0 log warnings to stderr alone."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if rank == 0:
        handlers.append(logging.StreamHandler(open_unlinked(file, "a", encoding="utf-8")))
    known = file.read_text(errors="replace") if resumed and file.is_file() else ""
    for handler in handlers:
        handler.addFilter(_OnlyNew(known))
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING,
        format=f"%(asctime)s {f'rank {rank}: ' if rank else ''}%(mark)s%(message)s",
        datefmt="%H:%M:%S",
        handlers=handlers,
        force=True,
    )
    logging.captureWarnings(True)
