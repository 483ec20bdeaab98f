"""``metrics.csv``: a file of the run directory that a run which goes on goes on in.

It does not know which metrics there are.
"""

import csv
import errno
import io
import logging
import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from transformer.common.files import NoSpaceLeft, open_unlinked, written_whole

log = logging.getLogger(__name__)


class EpochLogger(Logger):
    """Logs how many epochs the updates make; what Lightning takes for an epoch has no end."""

    epochs: Callable[[int], float | None] | None = None

    def counted(self, metrics: Mapping[str, float], step: int | None) -> dict[str, float]:
        """The metrics with the ``epoch``, if known, at the end of an update; steps are from 0."""
        if self.epochs is None or step is None:
            return dict(metrics)
        counted = {**metrics, "epoch": self.epochs(step + 1)}
        return {name: value for name, value in counted.items() if value is not None}


class ContinuedCSVLogger(EpochLogger):
    """Writes ``metrics.csv``: a row for each call, columns in alphabetical order.

    A run that goes on goes on in its file. Rows are on the disk when ``save`` returns; where the
    disk is full they are kept for the next time.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = folder / "metrics.csv"
        self._columns: list[str] = []
        self._written = 0
        self._waiting: list[dict[str, Any]] = []
        self._opened = False

    @property
    def name(self) -> str:
        """Lightning asks for it; the run directory is the name."""
        return ""

    @property
    def version(self) -> str:
        """Lightning asks for it; there is one of a run directory."""
        return ""

    @property
    def save_dir(self) -> str:
        """The run directory."""
        return str(self.file.parent)

    @property
    def log_dir(self) -> str:
        """Where the file lies."""
        return self.save_dir

    @property
    def rows(self) -> int:
        """Rows so far."""
        self._open()
        return self._written + len(self._waiting)

    def newest(self) -> dict[str, tuple[float, int]]:
        """The last value of each metric, and the update that it is of; damaged rows have none."""
        found: dict[str, tuple[float, int]] = {}
        for row in _read(self.file)[1]:
            with suppress(KeyError, TypeError, ValueError):
                update = int(row["step"]) + 1
                found |= {name: (float(cell), update) for name, cell in row.items() if cell}
        return found

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        self._open()
        self._waiting.append({**self.counted(metrics, step), "step": step})

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kw: Any) -> None:
        """Leave that to ``config.yaml``."""

    @rank_zero_only
    def save(self) -> None:
        """Write what is not written yet."""
        if not self._waiting:
            return
        columns = sorted({*self._columns, *(name for row in self._waiting for name in row)})
        try:
            if columns == self._columns:
                _append(self.file, _text(self._waiting, columns, header=False))
            else:
                before = _read(self.file)[1]
                _replace(self.file, _text([*before, *self._waiting], columns, header=True))
        except (OSError, NoSpaceLeft) as error:
            log.warning("%s: %s; its rows wait", self.file, error)
            return
        self._written += len(self._waiting)
        self._columns, self._waiting = columns, []

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write what is not written yet."""
        self.save()

    @rank_zero_only
    def cut(self, rows: int) -> None:
        """Forget the rows after the first few: the run has gone back to before them."""
        self._open()
        if self._written > rows:
            header_and_rows = self.file.read_bytes().splitlines(keepends=True)[: rows + 1]
            _cut(self.file, sum(map(len, header_and_rows)))
            self._written = rows

    def _open(self) -> None:
        if not self._opened:
            self._columns, rows = _read(self.file)
            self._written, self._opened = len(rows), True
            if self.file.exists():
                _cut(self.file, self.file.read_bytes().rfind(b"\n") + 1)


def _read(file: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and whole rows; a last line without an end is of a process that was killed."""
    if not file.exists():
        return [], []
    whole = file.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0]
    reader = csv.DictReader(io.StringIO(whole))
    return list(reader.fieldnames or []), list(reader)


def _text(rows: list[dict[str, Any]], columns: list[str], *, header: bool) -> str:
    text = io.StringIO()
    # A damaged row may have more cells than there are columns.
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _append(file: Path, text: str) -> None:
    """Add the text, or nothing of it."""
    data = text.encode()
    with open_unlinked(file, "ab", buffering=0) as stream:
        size = stream.tell()
        try:
            if stream.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(stream.fileno())
        except OSError:
            os.ftruncate(stream.fileno(), size)
            raise


def _cut(file: Path, size: int) -> None:
    with open_unlinked(file, "r+b") as stream:
        stream.truncate(size)


def _replace(file: Path, text: str) -> None:
    with written_whole(file) as part:
        part.write_text(text, encoding="utf-8")
