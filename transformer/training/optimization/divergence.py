"""What to do about an update that would do harm: leave it out; and if there are many, go back.

It sees the loss and the gradient's norm of each update, and no weights: run.py goes back to a
checkpoint. Leaving out updates whose loss spikes, and going back to before them:
Chowdhery et al. 2022, "PaLM", section 5.1.
"""

import logging
import math
import statistics
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.files import open_unlinked
from transformer.data.batching.loader import Update
from transformer.data.tokenization.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_WINDOW = 100
_ENOUGH = 10


@dataclass(frozen=True)
class RecoveryConfig:
    """When an update is bad, and what follows.

    Attributes:
        explosion: An update is bad when its loss, in nats per target token, exceeds the median of
            the last hundred good ones by more than this; null judges no loss that is a number.
            One with a loss or gradient that is no finite number always is.
        skips: Bad updates in a row after which training goes back to the last good checkpoint.
        returns: How often it may go back; then training stops.
        lr_factor: What the learning rate is multiplied by at each return.
    """

    explosion: float | None
    skips: int
    returns: int
    lr_factor: float

    def __post_init__(self) -> None:
        if self.explosion is not None and self.explosion <= 0:
            raise InputError(f"recovery.explosion={self.explosion} must be above 0, or null")
        if self.skips < 1:
            raise InputError(f"recovery.skips={self.skips} must be at least 1")
        if self.returns < 0:
            raise InputError(f"recovery.returns={self.returns} must be 0 or more")
        if not 0 < self.lr_factor <= 1:
            raise InputError(f"recovery.lr_factor={self.lr_factor} must be above 0 and at most 1")


class Diverged(Exception):
    """Too many bad updates in a row; the weights are still those before the first of them.

    Attributes:
        update: The micro-batches of the last of them, on this rank.
        number: Its number.
    """

    def __init__(self, reason: str, update: Update[Any], number: int) -> None:
        super().__init__(reason)
        self.update, self.number = update, number


def batch_text(update: Update[Any], tokenizer: Tokenizer) -> str:
    """What the batches of an update say, a line a row, source and target parted by a tab."""
    decode = (tokenizer.decode_source, tokenizer.decode_target)
    lines = []
    for batch in update.batches:
        sides = [
            decoded(side.tolist()) for decoded, side in zip(decode, batch.text(), strict=False)
        ]
        lines += ["\t".join(row) for row in zip(*sides, strict=True)]
    return "".join(f"{line}\n" for line in lines)


def save_text(divergence: Diverged, folder: Path, rank: int, tokenizer: Tokenizer) -> Path:
    """Write what the batches of a rank said that training diverged with; returns where.

    Where that is not possible the log says so, and training goes on.
    """
    path = folder / f"diverged-at-{divergence.number}-rank-{rank}.txt"
    try:
        with open_unlinked(path, "w", encoding="utf-8") as file:
            file.write(batch_text(divergence.update, tokenizer))
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error.strerror)
    return path


class DivergenceDetector:
    """Tells bad updates from good ones, and counts them; every rank comes to the same verdict.

    Attributes:
        in_a_row: Bad updates since the last good one.
        skipped: Bad updates of the whole run.
        returned: How often the run has gone back to a checkpoint.
    """

    def __init__(self, config: RecoveryConfig) -> None:
        self.config = config
        self.in_a_row = self.skipped = self.returned = 0
        self._losses: deque[float] = deque(maxlen=_WINDOW)

    def is_good(self, loss: float, norm: float, update: int) -> bool:
        """Judge an update.

        Args:
            loss: Nats per target token, over all ranks.
            norm: Of its gradient.
            update: Its number, for the log.
        """
        reason = self._reason(loss, norm)
        if reason is None:
            self.in_a_row = 0
            self._losses.append(loss)
            return True
        self.in_a_row += 1
        self.skipped += 1
        logger.warning(
            "update %d is left out: %s (%d in a row, %d in all)",
            *(update, reason, self.in_a_row, self.skipped),
        )
        return False

    def raise_if_diverged(self, update: Update[Any], number: int) -> None:
        """Give up when the last bad update was one too many.

        Raises:
            Diverged: It was.
        """
        if self.in_a_row >= self.config.skips:
            reason = f"{self.in_a_row} bad updates in a row, the last of them {number}"
            raise Diverged(reason, update, number)

    @property
    def lr_scale(self) -> float:
        """What the learning rate of the config is multiplied by."""
        return self.config.lr_factor**self.returned

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs to judge alike."""
        return {
            "losses": list(self._losses),
            "in_a_row": self.in_a_row,
            "skipped": self.skipped,
            "returned": self.returned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as another judge would."""
        self._losses = deque(state["losses"], maxlen=_WINDOW)
        self.in_a_row = state["in_a_row"]
        # Going back does not forget that it has, nor why.
        self.skipped = max(self.skipped, state["skipped"])
        self.returned = max(self.returned, state["returned"])

    def _reason(self, loss: float, norm: float) -> str | None:
        if not math.isfinite(loss):
            return f"its loss is {loss}"
        if not math.isfinite(norm):
            return f"the norm of its gradient is {norm}"
        if self.config.explosion is not None and len(self._losses) >= _ENOUGH:
            usual = statistics.median(self._losses)
            if loss > usual + self.config.explosion:
                return f"its loss is {loss:.2f} where {usual:.2f} is usual"
        return None
