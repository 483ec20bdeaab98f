"""``train.log`` and stderr: all that a run says, and on a resume nothing that it has said before.

It does not know who says what.
"""

import logging
import sys
from pathlib import Path

LOG = "train.log"

_STAMP = "%H:%M:%S"
_OF_THE_START = (
    *("transformer.data.batch_module", "transformer.data.datamodule", "transformer.data.filters"),
    *("transformer.data.tagged", "transformer.doctor", "transformer.training.advice"),
    *("py.warnings", "pytorch_lightning", "lightning_fabric"),
)
"""Loggers of what a run says of text and settings at its start, and of warnings of libraries."""
_PREFIXES = {logging.INFO: "", logging.WARNING: "warning: ", logging.ERROR: "error: "}


class _Line(logging.Formatter):
    """The time, a warning marked as one, and what is said."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Mark a warning."""
        record.message = _PREFIXES.get(record.levelno, "") + record.message
        return super().formatMessage(record)


class _OnlyNew(logging.Filter):
    """Leaves out what the log of the run has already of its start."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        self.known = {
            line.partition(" ")[2].removeprefix("warning: ") for line in text.splitlines()
        }

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is new."""
        if not record.name.startswith(_OF_THE_START):
            return True
        return record.getMessage().partition("\n")[0] not in self.known


def log_to(file: Path, rank: int, *, resumed: bool = False) -> None:
    """Say everything on stderr and in the run directory; of other ranks only what is wrong.

    Args:
        file: The log of the run.
        rank: Of this process; 0 alone writes the file.
        resumed: Whether the run goes on: what the file has of its start is not said again.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if rank == 0:
        handlers.append(logging.FileHandler(file))
    only_new = _OnlyNew(file) if resumed else None
    for handler in handlers:
        handler.setFormatter(
            _Line(
                "%(asctime)s %(message)s" if rank == 0 else f"%(asctime)s rank {rank}: %(message)s",
                _STAMP,
            )
        )
        if only_new is not None:
            handler.addFilter(only_new)
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING, handlers=handlers, force=True
    )
    logging.captureWarnings(True)
