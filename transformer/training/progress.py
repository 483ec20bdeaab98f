"""A progress bar for a terminal, a line now and then for a log.

It does not measure: it shows what others have logged.
"""

import logging
import sys
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

logger = logging.getLogger(__name__)


class ProgressBar(Callback):
    """Loss, score, tokens per second and time left, on stderr.

    Silent when stderr is no terminal; the log then says the same every ``log_every_n_steps``.
    """

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.validated = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar where it belongs: at the update that comes next."""
        if not (sys.stderr.isatty() and trainer.is_global_zero):
            return
        self.progress = Progress(
            TextColumn("update"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.progress.start()
        self.task = self.progress.add_task(
            "update", total=_updates(trainer), completed=trainer.global_step, shown=""
        )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance."""
        if self.progress is not None:
            # Where a validation comes first, the bound is set after it.
            self.progress.update(self.task, total=_updates(trainer), completed=trainer.global_step)
            if time_to_log(trainer):
                self.progress.update(self.task, shown=_shown(trainer, self.validated))
        elif trainer.is_global_zero and time_to_log(trainer):
            shown = _shown(trainer, self.validated)
            logger.info("update %d/%s: %s", trainer.global_step, _updates(trainer) or "?", shown)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the scores, and note which update they are of; BLEU has a line of its own."""
        self.validated = trainer.global_step
        shown = _shown(trainer, self.validated)
        if self.progress is not None:
            self.progress.update(self.task, shown=shown)
        if trainer.is_global_zero and "val/bleu" not in trainer.callback_metrics:
            logger.info("update %d/%s: %s", trainer.global_step, _updates(trainer) or "?", shown)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar."""
        self._close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Leave the terminal as it was."""
        self._close()

    def _close(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None


def time_to_log(trainer: Trainer) -> bool:
    """Whether Lightning writes what is logged at the end of this update."""
    interval: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return trainer.global_step % interval == 0


def _updates(trainer: Trainer) -> int | None:
    """Updates that the run will make, if anything but time bounds it."""
    updates = trainer.estimated_stepping_batches
    return int(updates) if updates != float("inf") else None


def _shown(trainer: Trainer, validated: int) -> str:
    """The metrics of interest that have been logged so far.

    Args:
        trainer: That has logged them.
        validated: The update that the scores of the validation are of.
    """
    names = {
        "train/loss": "loss {:.3f}",
        "val/bleu": "BLEU {:.1f} at update {}",
        "val/accuracy": "accuracy {:.2f} at update {}",
        "val/perplexity": "perplexity {:.2f} at update {}",
        "train/tokens_per_second": "{:,.0f} tokens/s",
    }
    logged = trainer.callback_metrics
    shown = {name: float(logged[name]) for name in names if name in logged}
    return "  ".join(names[name].format(value, validated) for name, value in shown.items())
