"""``train.log`` and stderr: all that a run says, and on a resume nothing that it has said before.

It does not know who says what.
"""

import logging
import sys
from pathlib import Path

from transformer.common.files import open_unlinked

LOG = "train.log"

_OF_THE_START = (
    *(
        "transformer.data.modules.base",
        "transformer.data.modules.translation",
        "transformer.data.text.filters",
    ),
    *(
        "transformer.data.corpora.holdout",
        "transformer.data.modules.tagging",
        "transformer.data.quality",
    ),
    *("transformer.runs.config_warnings", "py.warnings", "pytorch_lightning", "lightning_fabric"),
)
"""Loggers of what a run says of text and settings at its start, and of warnings of libraries."""


class _OnlyNew(logging.Filter):
    """Marks warnings, and leaves out lines of the start that are known."""

    def __init__(self, known: str) -> None:
        super().__init__()
        lines = (line.partition(" ")[2] for line in known.splitlines())
        self.known = {line.removeprefix("warning: ") for line in lines}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is new."""
        record.mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        first = record.getMessage().partition("\n")[0]
        return first not in self.known or not record.name.startswith(_OF_THE_START)


def log_to(file: Path, rank: int, *, resumed: bool = False) -> None:
    """Say everything on stderr and in the log of a run; of other ranks only what is wrong.

    Where the run is ``resumed``, what the file has of its start is not said again.
    """
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
