"""Shows logged metrics: a progress bar for a terminal, a line at each interval for a log."""

import logging
import os
import sys
import time
from datetime import timedelta
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import Timer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from transformer.settings.metrics import METRICS

logger = logging.getLogger(__name__)


class ProgressBar(Callback):
    """Update, epoch, loss, score, speed and time left: a bar on a terminal, lines in the log.

    Lightning's bars count the batches of an epoch, not the updates of a run, and log no lines.
    """

    def __init__(self, metric: str = "val/bleu") -> None:
        self.metric = metric
        name = metric.removeprefix("val/")
        text_metric = METRICS.get(name)
        self.is_logged_by_task = text_metric is not None
        score = f"{name} {{:.2f}}" if text_metric is None else f"{text_metric.label} {{:.1f}}"
        self.formats = {
            "train/loss": "loss {:.3f}",
            metric: f"{score} at update {{}}",
            "train/tokens_per_second": "{:,.0f} tokens/s",
        }
        self.progress: Progress | None = None
        self.above: LogAboveBar | None = None
        self.validated = 0
        self.texts: list[str] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        self.start = (trainer.global_step, time.monotonic())
        if not sys.stderr.isatty():
            return
        console = Console(stderr=True)
        line = TextColumn("{task.fields[line]}", markup=False, table_column=Column(no_wrap=True))
        columns = (BarColumn(20), line, _TimeLeft(_timer(trainer)))
        self.progress = Progress(*columns, console=console, speed_estimate_period=300)
        self.above = LogAboveBar(console)
        self.progress.start()
        self.task = self.progress.add_task("", line="")
        self._show(trainer)

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        periodic = time_to_log(trainer)
        if periodic:
            self._log(trainer, periodic=True)
        self._show(trainer, new_metrics=periodic)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the scores with their update; text metrics have a separate log line."""
        self.validated = trainer.global_step
        self._show(trainer, new_metrics=True)
        if not self.is_logged_by_task:
            self._log(trainer, periodic=False)

    def on_train_end(self, trainer: Trainer, *_: object) -> None:
        if self.progress is not None and self.above is not None:
            self.progress.stop()
            self.above.close()
            self.progress = self.above = None

    def on_exception(self, trainer: Trainer, *_: object) -> None:
        self.on_train_end(trainer)

    def _show(self, trainer: Trainer, *, new_metrics: bool = False) -> None:
        """Update the bar; the host waits for a GPU only if there are new metrics."""
        if self.progress is not None:
            if new_metrics:
                self.texts = list(self._metrics(trainer).values())
            texts = [_update(trainer), _shown(_epochs(trainer)), *self.texts]
            self.progress.update(
                self.task,
                total=_max_updates(trainer),  # it may be set after a validation at the start
                completed=trainer.global_step,
                line="  ".join(text for text in texts if text),
            )

    def _log(self, trainer: Trainer, *, periodic: bool) -> None:
        """Log all metrics and the time left (also on the bar), or the metrics of a validation."""
        if trainer.is_global_zero:
            update = shown_update(_update(trainer), _epochs(trainer))
            metrics = self._metrics(trainer).items()
            shown = [text for name, text in metrics if periodic or name.startswith("val/")]
            if periodic:
                shown += self._time_left(trainer)
            logger.info("%s: %s", update, "  ".join(shown), extra={"on_bar": periodic})

    def _time_left(self, trainer: Trainer) -> list[str]:
        """The time left at the mean speed of this process, or of ``trainer.max_time`` if less."""
        total = _max_updates(trainer)
        done = trainer.global_step
        if total is not None and done >= total:
            return []
        first, start = self.start
        seconds = None
        if total is not None and first < done:
            seconds = (time.monotonic() - start) / (done - first) * (total - done)
        time_left = _bounded(seconds, _timer(trainer))
        return [] if time_left is None else [f"left {time_left}"]

    def _metrics(self, trainer: Trainer) -> dict[str, str]:
        logged = trainer.callback_metrics
        shown = [(name, text) for name, text in self.formats.items() if name in logged]
        return {name: text.format(float(logged[name]), self.validated) for name, text in shown}


class _TimeLeft(ProgressColumn):
    """The time left at the speed of the last minutes, or of ``trainer.max_time`` if less."""

    max_refresh = 0.5

    def __init__(self, timer: Timer | None) -> None:
        super().__init__()
        self.timer = timer

    def render(self, task: Task) -> Text:
        time_left = _bounded(task.time_remaining, self.timer)
        text = "--:--" if time_left is None else str(time_left).removeprefix("0:")
        return Text(text, style="progress.remaining")


class LogAboveBar:
    """Stream of the log handlers that writes above the bar; create it before the bar."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.terminal = sys.stderr
        self.process = os.getpid()
        handlers = logging.getLogger().handlers
        streams = [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]
        self.handlers = [handler for handler in streams if handler.stream is self.terminal]
        for handler in self.handlers:
            handler.setStream(self)
            handler.addFilter(_not_on_bar)

    def write(self, text: str) -> None:
        """Write whole lines; the terminal wraps long ones, so that they can be copied."""
        if os.getpid() == self.process:
            self.console.print(Text(text.removesuffix("\n")), soft_wrap=True)
        else:  # A forked process that loads data must not use the lock of the bar.
            self.terminal.write(text)

    def flush(self) -> None:
        self.terminal.flush()

    def close(self) -> None:
        for handler in self.handlers:
            handler.setStream(self.terminal)
            handler.removeFilter(_not_on_bar)


def shown_update(update: int | str, epochs: float | None) -> str:
    """Progress of the run in the log: ``update 340, epoch 3.4``."""
    return f"update {update}" if epochs is None else f"update {update}, {_shown(epochs)}"


def time_to_log(trainer: Trainer) -> bool:
    """Whether Lightning writes the metrics at the end of this update."""
    interval: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return trainer.global_step % interval == 0


def _shown(epochs: float | None) -> str:
    return "" if epochs is None else f"epoch {epochs:.1f}"


def _epochs(trainer: Any) -> float | None:
    return trainer.datamodule.epochs(trainer.global_step)


def _timer(trainer: Any) -> Timer | None:
    """Lightning's timer of ``trainer.max_time``."""
    timers = [callback for callback in trainer.callbacks if isinstance(callback, Timer)]
    return timers[0] if timers else None


def _bounded(seconds: float | None, timer: Timer | None) -> timedelta | None:
    """A time left, at most that of the timer; None if neither is known."""
    bounds = [seconds, None if timer is None else timer.time_remaining()]
    known = [bound for bound in bounds if bound is not None]
    return timedelta(seconds=max(0, round(min(known)))) if known else None


def _not_on_bar(record: logging.LogRecord) -> bool:
    return not getattr(record, "on_bar", False)


def _update(trainer: Trainer) -> str:
    return f"{trainer.global_step}/{_max_updates(trainer) or '?'}"


def _max_updates(trainer: Trainer) -> int | None:
    updates = trainer.estimated_stepping_batches
    return int(updates) if updates != float("inf") else None
