"""Writes and reads checkpoints of training, makes one file of parts, and renames outdated files."""

import logging
from concurrent.futures import Future
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

import pytorch_lightning
from pytorch_lightning.plugins.io import CheckpointIO

from transformer.checkpoint.archive import SHARDS, write_archive
from transformer.checkpoint.checkpoint import read_parts, read_payload, write_payload
from transformer.checkpoint.locate import LAST, TUNED
from transformer.checkpoint.sharded import SUFFIX, delete_unnamed, part_folder_of
from transformer.common.errors import InputError
from transformer.training.checkpointing.training_state import (
    LIGHTNING_READS,
    Resumable,
    check_saved_state,
)

logger = logging.getLogger(__name__)


class AtomicCheckpointIO(CheckpointIO):
    """Writes files atomically; ``error`` of a write is not raised, because other ranks wait.

    Lightning's keeps no file before the newest, and verifies nothing that it reads.

    The checkpoint ``read`` is not read again when training begins with it. ``pending`` is the
    error, or None, of a write in the background (fsdp.py).
    """

    def __init__(self, read: Resumable | None = None) -> None:
        self.error: InputError | None = None
        self.pending: Future[InputError | None] | None = None
        self.read = read

    def wait(self) -> None:
        """Wait for the end of a write in the background."""
        pending, self.pending = self.pending, None
        if pending is not None:
            self.error = pending.result()

    teardown = wait

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        self.error = None
        try:
            write_payload(checkpoint, Path(path))
        except InputError as error:
            self.error = error
            logger.error("%s; the old checkpoint is kept, and training continues", error)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_parts(self.load_index(Path(path)), Path(path))

    def load_index(self, path: Path) -> dict[str, Any]:
        """Load a checkpoint without tensors that lie in parts of several ranks."""
        read, self.read = self.read, None
        if read is None:
            payload = read_payload(path, parts=False)
            check_saved_state(payload, path)
        else:
            payload = read.take()
        known = {key: payload[key] for key in (*LIGHTNING_READS, SHARDS) if key in payload}
        # Lightning would migrate files of its older versions.
        return known | {"pytorch-lightning_version": pytorch_lightning.__version__}

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def set_aside_outdated(run: Path) -> None:
    """Rename ``tuned.ckpt`` and the test results: resumed training may find a better model."""
    names = (f"checkpoints/{TUNED}.ckpt", "test.json", "test_*.json", "test.hyp", "test_*.hyp")
    for file in (file for name in names for file in sorted(run.glob(name))):
        aside = _set_aside(file, "outdated")
        logger.info("%s is older than this training; it is kept as %s", file, aside.name)


def set_aside_unused(folder: Path, resume: str | PathLike[str] | None) -> Path | None:
    """Rename ``last.ckpt``, and return its name, if training resumes from another file."""
    last = folder / f"{LAST}.ckpt"
    if resume is None or Path(resume).resolve() == last.resolve() or not last.exists():
        return None
    aside = _set_aside(last, "unused")
    logger.warning("resuming from %s: %s is not used, and kept as %s", resume, last, aside.name)
    return aside


def _set_aside(file: Path, why: str) -> Path:
    """Rename a file with a reason and the time at which it was written."""
    written = datetime.fromtimestamp(file.stat().st_mtime)
    aside = file.with_name(f"{why}-{file.stem}-{written:%Y-%m-%d_%H-%M-%S}{file.suffix}")
    return file.rename(aside)


def consolidate(folder: Path) -> None:
    """Make one file of each checkpoint of a folder that has whole parts of several ranks."""
    if not any(folder.glob(f"*{SUFFIX}")):
        return
    for file in sorted(folder.glob("*.ckpt")):
        if part_folder_of(file):
            try:
                payload = read_parts(read_payload(file, parts=False), file, scratch=folder)
            except InputError as error:
                logger.warning("%s; it stays as it is", error)
                continue
            # The content stays the same, so that no previous.ckpt is written.
            write_archive(payload, file)
    delete_unnamed(folder)
