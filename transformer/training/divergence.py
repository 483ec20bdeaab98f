"""Bad updates: which are skipped, and when a run has diverged."""

import logging
import math
import statistics
from collections import deque
from pathlib import Path
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from transformer.common.files import open_unlinked
from transformer.data.batching.loader import Update
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.training import RecoveryConfig

logger = logging.getLogger(__name__)

_WINDOW = 100
"""Good updates whose median is the usual loss."""

_MIN_LOSSES = 10
"""Good updates before there is a usual loss."""


class Diverged(Exception):
    """Too many bad updates in a row; ``update`` is the last. They changed no weights."""

    def __init__(self, reason: str, update: Update[Any], number: int) -> None:
        super().__init__(reason)
        self.update = update
        self.number = number


class DivergenceDetector:
    """Classifies updates as good or bad on their device, and counts them on the host.

    A bad update is skipped (Chowdhery et al. 2022, "PaLM", section 5.1).
    """

    def __init__(self, config: RecoveryConfig) -> None:
        self.config = config
        self.in_a_row = 0
        self.skipped = 0
        self.returned = 0
        self._losses: deque[float] = deque(maxlen=_WINDOW)

    def accepts(self, loss: Tensor, norm: Tensor) -> Bool[Tensor, ""]:
        """Whether to apply an update, by its loss (nats per token) and norm over all ranks."""
        good = loss.isfinite() & norm.isfinite()
        usual = self._usual_loss()
        if usual is None or self.config.explosion is None:
            return good
        return good & (loss <= usual + self.config.explosion)

    def count(self, good: bool, loss: float, norm: float, update: int) -> None:
        """Count an update, accepted or not; its number is for the log."""
        if good:
            self.in_a_row = 0
            self._losses.append(loss)
            return
        self.in_a_row += 1
        self.skipped += 1
        counts = f"{self.in_a_row} in a row, {self.skipped} in all"
        logger.warning("update %d is skipped: %s (%s)", update, self._reason(loss, norm), counts)

    def raise_if_diverged(self, update: Update[Any], number: int) -> None:
        """Raise Diverged after ``recovery.skips`` bad updates in a row."""
        if self.in_a_row >= self.config.skips:
            reason = f"{self.in_a_row} bad updates in a row, the last of them {number}"
            raise Diverged(reason, update, number)

    @property
    def lr_scale(self) -> float:
        """Factor of the learning rate, after the returns to a checkpoint."""
        return self.config.lr_factor**self.returned

    def state_dict(self) -> dict[str, Any]:
        """The state; with it, a resumed run makes the same decisions."""
        return {
            "losses": list(self._losses),
            "in_a_row": self.in_a_row,
            "skipped": self.skipped,
            "returned": self.returned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state; the number of returns never decreases."""
        self._losses = deque(state["losses"], maxlen=_WINDOW)
        self.in_a_row = state["in_a_row"]
        self.skipped = max(self.skipped, state["skipped"])
        self.returned = max(self.returned, state["returned"])

    def _usual_loss(self) -> float | None:
        """The median of the last good updates; None if they are too few."""
        return statistics.median(self._losses) if len(self._losses) >= _MIN_LOSSES else None

    def _reason(self, loss: float, norm: float) -> str:
        if not math.isfinite(loss):
            return f"its loss is {loss}"
        if not math.isfinite(norm):
            return f"the norm of its gradient is {norm}"
        return f"its loss is {loss:.2f} where {self._usual_loss():.2f} is usual"


def save_text(divergence: Diverged, folder: Path, rank: int, tokenizer: Tokenizer) -> Path:
    """Write the text of the batches of this rank at a divergence, a line per sentence pair."""
    path = folder / f"diverged-at-{divergence.number}-rank-{rank}.txt"
    decoders = (tokenizer.decode_source, tokenizer.decode_target)
    try:
        with open_unlinked(path, "w", encoding="utf-8") as file:
            for batch in divergence.update.batches:
                # A batch of one text has no second side.
                sides = zip(decoders, batch.text(), strict=False)
                texts = [decode(side.tolist()) for decode, side in sides]
                file.writelines("\t".join(pair) + "\n" for pair in zip(*texts, strict=True))
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error.strerror)
    return path
