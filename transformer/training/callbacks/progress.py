"""A progress bar for a terminal, a line now and then for a log.

It does not measure: it shows what others have logged.
"""

import logging
import os
import sys
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.progress_bar import ProgressBar as Bar
from rich.table import Table
from rich.text import Text

from transformer.training.callbacks.metrics_file import ContinuedCSVLogger

logger = logging.getLogger(__name__)

_METRICS = {
    "train/loss": "loss {:.3f}",
    "val/bleu": "BLEU {:.1f} at update {}",
    "val/accuracy": "accuracy {:.2f} at update {}",
    "val/perplexity": "perplexity {:.2f} at update {}",
    "train/tokens_per_second": "{:,.0f} tokens/s",
}
"""The metrics of interest, in the order in which they are shown."""

_FIRST = ("update", "left", "train/loss", "train/tokens_per_second", "epoch")
"""What a narrow terminal shows first; what else there is comes after it, and the bar last."""

_BAR = (8, 40)
"""Columns of the bar, at least and at most."""


class ProgressBar(Callback):
    """Update, epoch, loss, score, tokens per second and time left.

    The log says it every ``log_every_n_steps``; a terminal shows a bar in place of those lines.
    """

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.above: Above | None = None
        self.validated = 0
        self.before: dict[str, float] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar where it belongs: at the update that comes next, with what is known."""
        for csv in trainer.loggers:
            going_on = trainer.is_global_zero and trainer.global_step
            if going_on and isinstance(csv, ContinuedCSVLogger):
                newest = csv.newest()
                self.before = {name: value for name, (value, _) in newest.items()}
                self.validated = newest.get("val/loss", (0.0, 0))[1]
        if not (sys.stderr.isatty() and trainer.is_global_zero):
            return
        console = Console(stderr=True)
        self.progress = Progress(Fitting(console), console=console, speed_estimate_period=300)
        self.above = Above(console)
        self.progress.start()
        self.task = self.progress.add_task("update")
        self._advance(trainer)
        self._show(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance."""
        self._advance(trainer)
        if time_to_log(trainer):
            self._show(trainer)
            self._log(trainer, on_bar=True)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the scores, and note which update they are of; BLEU has a line of its own."""
        self.validated = trainer.global_step
        self._show(trainer)
        if "val/bleu" not in trainer.callback_metrics:
            self._log(trainer, on_bar=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar."""
        self._close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Leave the terminal as it was."""
        self._close()

    def _advance(self, trainer: Trainer) -> None:
        if self.progress is not None:
            # Where a validation comes first, the bound is set after it.
            total, done = _updates(trainer), trainer.global_step
            counts: Any = {"update": f"{done}/{total or '?'}", "epoch": _shown(_epochs(trainer))}
            self.progress.update(self.task, total=total, completed=done, **counts)

    def _show(self, trainer: Trainer) -> None:
        if self.progress is not None:
            shown: Any = self._metrics(trainer)
            self.progress.update(self.task, **shown)

    def _log(self, trainer: Trainer, *, on_bar: bool) -> None:
        if not trainer.is_global_zero:
            return
        shown = "  ".join(self._metrics(trainer).values())
        update = f"{trainer.global_step}/{_updates(trainer) or '?'}"
        line = shown_update(update, _epochs(trainer))
        logger.info("%s: %s", line, shown, extra={"on_bar": on_bar})

    def _metrics(self, trainer: Trainer) -> dict[str, str]:
        """The metrics of interest that have been logged so far, before a resume too."""
        logged: dict[str, Any] = {**self.before, **trainer.callback_metrics}
        return {
            name: text.format(float(logged[name]), self.validated)
            for name, text in _METRICS.items()
            if name in logged
        }

    def _close(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
        if self.above is not None:
            self.above.close()
            self.above = None


class Above:
    """The stream of log handlers of a terminal, above the bar; what the bar shows is left out.

    To be made before the bar, whose library puts a stream of its own in the place of stderr.

    Args:
        console: Of the bar.
    """

    def __init__(self, console: Console) -> None:
        self.console, self.terminal, self.process = console, sys.stderr, os.getpid()
        self.handlers = [
            handler
            for handler in logging.getLogger().handlers
            if isinstance(handler, logging.StreamHandler) and handler.stream is self.terminal
        ]
        for handler in self.handlers:
            handler.setStream(self)
            handler.addFilter(_not_on_bar)

    def write(self, text: str) -> None:
        """Write whole lines; a terminal breaks the long ones, which can be copied then."""
        if os.getpid() == self.process:
            self.console.print(Text(text.removesuffix("\n")), soft_wrap=True)
        else:  # A process that loads data may have been forked while the bar held its lock.
            self.terminal.write(text)

    def flush(self) -> None:
        """Write what is left, which is nothing here."""
        self.terminal.flush()

    def close(self) -> None:
        """Give the handlers their stream back."""
        for handler in self.handlers:
            handler.setStream(self.terminal)
            handler.removeFilter(_not_on_bar)


class Fitting(ProgressColumn):
    """One line, of what fits the width of the terminal: the bar, and what ``task.fields`` has."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.left = TimeRemainingColumn(compact=True)
        super().__init__()

    def render(self, task: Task) -> Table:
        """Leave out what has no room, the least important first."""
        order = ("update", "epoch", *_METRICS, "left")
        known = task.fields | {"left": f"left {self.left.render(task)}" if task.total else ""}
        parts = {name: known[name] for name in order if known.get(name)}
        # The terminal writes ^C behind it: on a line of its own it would stay.
        fitting, width = set[str](), self.console.width - len("^C")
        for name in (*_FIRST, *(name for name in order if name not in _FIRST)):
            if name in parts and len(parts[name]) + 2 * bool(fitting) <= width:
                width -= len(parts[name]) + 2 * bool(fitting)
                fitting.add(name)
        line = Text("  ".join(parts[name] for name in order if name in fitting), no_wrap=True)
        grid = Table.grid(padding=(0, 2))
        if width < _BAR[0] + 2:
            grid.add_row(line)
            return grid
        bar = Bar(task.total, task.completed, width=min(_BAR[1], width - 2))
        grid.add_row(bar, line)
        return grid


def shown_update(update: int | str, epochs: float | None) -> str:
    """How far the run is, as the log says it: ``update 340, epoch 3.4``."""
    return ", ".join(filter(None, (f"update {update}", _shown(epochs))))


def time_to_log(trainer: Trainer) -> bool:
    """Whether Lightning writes what is logged at the end of this update."""
    interval: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return trainer.global_step % interval == 0


def _shown(epochs: float | None) -> str:
    return "" if epochs is None else f"epoch {epochs:.1f}"


def _epochs(trainer: Trainer) -> float | None:
    """None where nobody knows yet."""
    epochs: float | None = trainer.datamodule.epochs(trainer.global_step)  # type: ignore[attr-defined]
    return epochs


def _not_on_bar(record: logging.LogRecord) -> bool:
    return not getattr(record, "on_bar", False)


def _updates(trainer: Trainer) -> int | None:
    """Updates that the run will make, if anything but time bounds it."""
    updates = trainer.estimated_stepping_batches
    return int(updates) if updates != float("inf") else None
