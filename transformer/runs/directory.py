"""The directory of a run that trains: its lock, ``train.log`` and ``run.json``.

``run.json`` is for reports: command, versions, hardware and times of each start; sizes. This module
imports neither torch nor Lightning until a run starts.
"""

import json
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.checkpoint.run_directory import CONFIG, LOCK, is_locked, locked
from transformer.common.errors import InputError
from transformer.common.files import PACKAGE, open_unlinked, read_json, write_text_whole
from transformer.common.processes import command_line
from transformer.reports.page import REPORT

if TYPE_CHECKING:
    from pytorch_lightning import Trainer

    from transformer.data.datamodules.base import BatchModule

LOG = "train.log"

RECORD = "run.json"

_LIBRARIES = ("py.warnings", "pytorch_lightning", "lightning_fabric")

_PACKAGES = (
    "transformer",
    "torch",
    "pytorch-lightning",
    "sentencepiece",
    "sacrebleu",
    "hydra-core",
    "numpy",
)
"""Packages whose versions are recorded."""

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
    new_parents = [parent for parent in folder.parents if not parent.exists()]
    with ExitStack() as stack:
        _make_and_lock(folder, stack)
        new = {path.name for path in folder.iterdir()} <= {LOG, LOCK}
        try:
            yield
        except (InputError, OSError):
            of_a_start = {LOG, LOCK, CONFIG, RECORD, f"{REPORT}.html", f"{REPORT}.json"}
            if new and {path.name for path in folder.iterdir()} <= of_a_start:
                shutil.rmtree(folder)
                _remove_empty(new_parents)
            raise


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, the innermost first, up to one that is not empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _make_and_lock(folder: Path, stack: ExitStack) -> None:
    """Make and lock a folder; another process may remove it after an error at its start."""
    for _ in range(3):
        with suppress(FileNotFoundError):  # another process has just removed an empty parent
            folder.mkdir(parents=True, exist_ok=True)
        lock = ExitStack()
        try:
            lock.enter_context(locked(folder))
        except InputError:
            if folder.is_dir():
                raise
            continue
        if is_locked(folder):  # otherwise the locked file was removed with its folder
            stack.push(lock)
            return
        lock.close()
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
    """Passes records to the parent of a logger, as if the level of the logger were not lowered."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self.logger = logger
        self.level_before = logger.getEffectiveLevel()

    def emit(self, record: logging.LogRecord) -> None:
        # The nearest logger with a level of its own, below this handler's.
        nearest = logging.getLogger(record.name)
        while nearest is not self.logger and not nearest.level and nearest.parent is not None:
            nearest = nearest.parent
        enabled = nearest is not self.logger or record.levelno >= self.level_before
        if enabled and self.logger.parent is not None:
            self.logger.parent.callHandlers(record)


@contextmanager
def run_log(file: Path, *, resumed: bool) -> Iterator[None]:
    """Add what the package logs, from INFO, and libraries warn of, to a file within a block.

    Other handlers get the same records as without it.
    """
    root = logging.getLogger()
    package = logging.getLogger(PACKAGE.name)
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
                as_before = _AsBefore(package)
                package.addHandler(as_before)
                stack.callback(package.removeHandler, as_before)
            package.propagate = False
            package.setLevel(min(logging.INFO, package.getEffectiveLevel()))
        for logger in loggers:
            logger.addHandler(handler)
            stack.callback(logger.removeHandler, handler)
        yield


def read_record(folder: Path) -> dict[str, Any]:
    """The values of the file; of a run without one, or with a damaged one, ``starts`` is empty."""
    values = read_json(folder / RECORD)
    return {"starts": [], **(values if isinstance(values, dict) else {})}


def record_start(folder: Path, trainer: "Trainer") -> None:
    """Add a start of training, and describe model and data."""
    import numpy as np

    data: BatchModule = trainer.datamodule  # type: ignore[attr-defined]
    start = {
        "command": command_line(),
        "started": _now(),
        "from_update": trainer.global_step,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in _PACKAGES},
        "commit": commit(),
        "hardware": _hardware(trainer),
    }
    sizes = {
        "parameters": sum(weight.numel() for weight in trainer.lightning_module.parameters()),
        "vocabulary": {
            "source": data.tokenizer.source_vocab_size,
            "target": data.tokenizer.target_vocab_size,
        },
        "lengths": {
            name: [np.bincount(lengths).tolist() for lengths in sides]
            for name, sides in data.lengths().items()
        },
    }
    _write(folder, {"starts": [*read_record(folder)["starts"], start], **sizes})


def record_end(folder: Path, reason: str) -> None:
    """Add the end of the last start, after its tests."""
    values = read_record(folder)
    starts = values["starts"]
    if starts:  # otherwise the user has deleted the file
        starts[-1] |= {"ended": _now(), "reason": reason}
        _write(folder, values)


def commit() -> str | None:
    """The commit of this code, with ``-dirty`` after a change; None outside of a git checkout."""
    git = ["git", "-C", str(PACKAGE)]
    quiet: Any = {"capture_output": True, "check": True, "text": True, "timeout": 10}
    try:
        # The package may be installed inside of a checkout of something else.
        subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], **quiet)
        name = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(name, **quiet).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _hardware(trainer: "Trainer") -> dict[str, Any]:
    import torch

    device = trainer.strategy.root_device
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return {
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "processor": next(names, platform.machine()),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "processes": trainer.world_size,
        "system": platform.platform(),
    }


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _write(folder: Path, values: dict[str, Any]) -> None:
    write_text_whole(folder / RECORD, json.dumps(values, ensure_ascii=False) + "\n")
