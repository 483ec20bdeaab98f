"""The directory of a run that trains: made, locked, with its log, and removed if nothing begins."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from transformer.checkpoint.config_file import CONFIG
from transformer.common.errors import InputError
from transformer.common.files import PACKAGE, open_unlinked
from transformer.reports.page import REPORT
from transformer.runs.run_json import RECORD
from transformer.training.checkpointing.run_directory import LOCK, is_locked, locked

LOG = "train.log"

_LIBRARIES = ("py.warnings", "pytorch_lightning", "lightning_fabric")

_START_LOGGERS = (
    "transformer.data.corpora.split",
    "transformer.data.datamodules",
    "transformer.data.text.training_filters",
    "transformer.quality",
    "transformer.runs.config_warnings",
    *_LIBRARIES,
)
"""Loggers of messages about text and settings, and of warnings of libraries."""


@contextmanager
def run_directory(folder: Path) -> Iterator[None]:
    """Make a run directory and lock it; remove it again after an error of the input or the disk.

    Raises InputError at once if another process or thread trains in it.
    """
    with ExitStack() as stack:
        _make_and_lock(folder, stack)
        new = {path.name for path in folder.iterdir()} <= {LOG, LOCK}
        try:
            yield
        except (InputError, OSError):
            written = {LOG, LOCK, CONFIG, RECORD, f"{REPORT}.html", f"{REPORT}.json"}
            if new and {path.name for path in folder.iterdir()} <= written:
                shutil.rmtree(folder)
            raise


def _make_and_lock(folder: Path, stack: ExitStack) -> None:
    """Make and lock a folder; another process may remove it after an error at its start."""
    for _ in range(3):
        folder.mkdir(parents=True, exist_ok=True)
        held = ExitStack()
        try:
            held.enter_context(locked(folder))
        except InputError:
            if folder.is_dir():
                raise
            continue
        if is_locked(folder):  # not a file of the folder that is gone
            stack.push(held)
            return
        held.close()
    raise InputError(f"{folder} is removed again and again by another process; wait for it")


class OnlyNew(logging.Filter):
    """Marks warnings; a resumed run does not repeat lines of its start that the log has."""

    def __init__(self, file: Path, *, resumed: bool) -> None:
        super().__init__()
        known = file.read_text(errors="replace") if resumed and file.is_file() else ""
        lines = (line.partition(" ")[2] for line in known.splitlines())
        self.known = {line.removeprefix("warning: ") for line in lines}

    def filter(self, record: logging.LogRecord) -> bool:
        record.mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        first = record.getMessage().partition("\n")[0]
        return first not in self.known or not record.name.startswith(_START_LOGGERS)


def log_format(rank: int = 0) -> logging.Formatter:
    """The format of a log with the filter ``OnlyNew``."""
    name = f"rank {rank}: " if rank else ""
    return logging.Formatter(f"%(asctime)s {name}%(mark)s%(message)s", "%H:%M:%S")


class _AsBefore(logging.Handler):
    """Hands on the records of a logger, whose level has been lowered, that its parent would get."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self.logger, self.level_before = logger, logger.getEffectiveLevel()

    def emit(self, record: logging.LogRecord) -> None:
        below = logging.getLogger(record.name)
        while below is not self.logger and not below.level and below.parent is not None:
            below = below.parent
        enabled = below is not self.logger or record.levelno >= self.level_before
        if enabled and self.logger.parent is not None:
            self.logger.parent.callHandlers(record)


@contextmanager
def run_log(file: Path, *, resumed: bool) -> Iterator[None]:
    """Add what the package logs, from INFO, and libraries warn of, to a file within a block.

    Other handlers get the same records as without it.
    """
    root, package = logging.getLogger(), logging.getLogger(PACKAGE.name)
    with ExitStack() as stack:
        handler = logging.StreamHandler(
            stack.enter_context(open_unlinked(file, "a", encoding="utf-8"))
        )
        handler.addFilter(OnlyNew(file, resumed=resumed))
        handler.setFormatter(log_format())
        loggers = [root]
        if not root.handlers or not package.isEnabledFor(logging.INFO):
            # A handler of the root would turn off Python's own way of printing warnings.
            loggers = [package, *map(logging.getLogger, _LIBRARIES)]
            stack.callback(package.setLevel, package.level)
            stack.callback(setattr, package, "propagate", package.propagate)
            if package.propagate:
                before = _AsBefore(package)
                package.addHandler(before)
                stack.callback(package.removeHandler, before)
            package.propagate = False
            package.setLevel(min(logging.INFO, package.getEffectiveLevel()))
        for logger in loggers:
            logger.addHandler(handler)
            stack.callback(logger.removeHandler, handler)
        yield
