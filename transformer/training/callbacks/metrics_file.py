"""``metrics.csv``: a file of the run directory that a resumed run continues.

It does not know which metrics there are.
"""

import csv
import io
import logging
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from transformer.common.files import NoSpaceLeft, open_unlinked, written_whole

log = logging.getLogger(__name__)


class EpochLogger(Logger):
    """Logs the epoch as a fraction; an epoch of Lightning has no end here."""

    epochs: Callable[[int], float | None] | None = None

    def with_epoch(self, metrics: Mapping[str, float], step: int | None) -> dict[str, float]:
        """The metrics with the ``epoch``, if known, at the end of an update; steps are from 0."""
        if self.epochs is None or step is None:
            return dict(metrics)
        values = {**metrics, "epoch": self.epochs(step + 1)}
        return {name: value for name, value in values.items() if value is not None}


class ContinuedCSVLogger(EpochLogger):
    """Writes ``metrics.csv``: a row for each call, columns in alphabetical order.

    A resumed run continues its file. ``save`` appends the new rows; it writes the file again where
    there is a new column, or rows were cut. If the disk is full, the next ``save`` writes them.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = folder / "metrics.csv"
        self._unsaved = False
        self._saved = 0
        self._columns: list[str] | None = None  # of the file; None: it must be written again

    name = version = ""
    """The run directory has one log, without a name or version of its own."""

    @property
    def save_dir(self) -> str:
        """The run directory."""
        return str(self.file.parent)

    log_dir = save_dir

    @cached_property
    def _rows(self) -> list[dict[Any, Any]]:
        """Rows of the file, without a line that a killed process left unfinished."""
        if not self.file.exists():
            return []
        with open_unlinked(self.file, "r", encoding="utf-8", errors="replace") as file:
            text = file.read()
        return list(csv.DictReader(io.StringIO(text.rpartition("\n")[0])))

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return len(self._rows)

    def newest(self) -> dict[str, tuple[float, int]]:
        """The last value of each metric, and its update; damaged rows are ignored."""
        found: dict[str, tuple[float, int]] = {}
        for row in self._rows:
            with suppress(KeyError, TypeError, ValueError):
                update = int(row["step"]) + 1
                found |= {name: (float(cell), update) for name, cell in row.items() if cell}
        return found

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        self._rows.append({**self.with_epoch(metrics, step), "step": step})
        self._unsaved = True

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kw: Any) -> None:
        """Write nothing: ``config.yaml`` holds them."""

    @rank_zero_only
    def save(self) -> None:
        """Bring the file up to date."""
        if not self._unsaved:
            return
        new = self._rows[self._saved :]
        try:
            if self._columns is not None and all(
                self._columns.count(n) for row in new for n in row
            ):
                with open_unlinked(self.file, "a", encoding="utf-8") as file:
                    file.write(self._text(new, self._columns))
            else:
                # A damaged row may have more cells than there are columns, under the key None.
                columns = sorted({name for row in self._rows for name in row if name is not None})
                with written_whole(self.file) as part:
                    header = dict(zip(columns, columns, strict=True))
                    text = self._text([header, *self._rows], columns)
                    part.write_text(text, encoding="utf-8")
                self._columns = columns
        except (OSError, NoSpaceLeft) as error:
            self._columns = None
            log.warning("%s: %s; its rows wait", self.file, error)
            return
        self._saved, self._unsaved = len(self._rows), False

    @staticmethod
    def _text(rows: list[dict[Any, Any]], columns: list[str]) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
        writer.writerows(rows)
        return text.getvalue()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write the file."""
        self.save()

    @rank_zero_only
    def cut(self, rows: int) -> None:
        """Delete all rows but the first few: the run has returned to their end."""
        if self.rows > rows:
            del self._rows[rows:]
            self._unsaved, self._columns = True, None
