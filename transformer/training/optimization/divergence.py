"""Detects divergence: skips bad updates, and reports when too many follow each other.

It sees the loss and the gradient norm of each update, and no weights; runs/train.py returns to a
checkpoint. Chowdhery et al. 2022, "PaLM", section 5.1, skip batches whose loss spikes.
"""

import logging
import math
import statistics
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from transformer.common.errors import raise_objections
from transformer.common.files import open_unlinked
from transformer.common.schema import Range, out_of_range
from transformer.data.batching.loader import Update
from transformer.data.tokenization.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_WINDOW = 100
_MIN_LOSSES = 10


@dataclass(frozen=True)
class RecoveryConfig:
    """When an update is bad, and what happens then.

    Attributes:
        explosion: An update is bad when its loss, in nats per target token, exceeds the median of
            the last hundred good updates by more than this; null accepts every finite loss. A
            loss or gradient norm that is not finite is always bad.
        skips: Bad updates in a row after which training returns to the last good checkpoint.
        returns: Maximum number of returns; then training stops.
        lr_factor: Factor of the learning rate at each return.

    Raises:
        InputError: A number is out of its range.
    """

    explosion: Annotated[float, Range(above=0)] | None
    skips: Annotated[int, Range(1)]
    returns: Annotated[int, Range(0)]
    lr_factor: Annotated[float, Range(above=0, most=1)]

    def __post_init__(self) -> None:
        raise_objections(out_of_range(self, "recovery"))


class Diverged(Exception):
    """Too many bad updates in a row; the weights are still those before the first of them.

    Attributes:
        update: The micro-batches of the last bad update, on this rank.
        number: Number of that update.
    """

    def __init__(self, reason: str, update: Update[Any], number: int) -> None:
        super().__init__(reason)
        self.update, self.number = update, number


def batch_text(update: Update[Any], tokenizer: Tokenizer) -> str:
    """Text of the batches of an update: one line per sentence pair, separated by a tab."""
    decode = (tokenizer.decode_source, tokenizer.decode_target)
    lines = []
    for batch in update.batches:
        sides = [
            decoded(side.tolist()) for decoded, side in zip(decode, batch.text(), strict=False)
        ]
        lines += ["\t".join(row) for row in zip(*sides, strict=True)]
    return "".join(f"{line}\n" for line in lines)


def save_text(divergence: Diverged, folder: Path, rank: int, tokenizer: Tokenizer) -> Path:
    """Write the text of the batches of this rank at a divergence; returns the file.

    If the file cannot be written, the log says so and training continues.
    """
    path = folder / f"diverged-at-{divergence.number}-rank-{rank}.txt"
    try:
        with open_unlinked(path, "w", encoding="utf-8") as file:
            file.write(batch_text(divergence.update, tokenizer))
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error.strerror)
    return path


class DivergenceDetector:
    """Classifies updates as good or bad and counts the bad ones; all ranks agree.

    Attributes:
        in_a_row: Bad updates since the last good one.
        skipped: Bad updates of the whole run.
        returned: Returns to a checkpoint so far.
    """

    def __init__(self, config: RecoveryConfig) -> None:
        self.config = config
        self.in_a_row = self.skipped = self.returned = 0
        self._losses: deque[float] = deque(maxlen=_WINDOW)

    def is_good(self, loss: float, norm: float, update: int) -> bool:
        """Whether the update may be applied.

        Args:
            loss: Nats per target token, over all ranks.
            norm: Norm of the gradient.
            update: Number of the update, for the log.
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
        """Stop after too many bad updates in a row.

        Raises:
            Diverged: There were ``recovery.skips`` of them.
        """
        if self.in_a_row >= self.config.skips:
            reason = f"{self.in_a_row} bad updates in a row, the last of them {number}"
            raise Diverged(reason, update, number)

    @property
    def lr_scale(self) -> float:
        """Factor on the learning rate of the config."""
        return self.config.lr_factor**self.returned

    def state_dict(self) -> dict[str, Any]:
        """State with which a resumed run makes the same decisions."""
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

    def _reason(self, loss: float, norm: float) -> str | None:
        if not math.isfinite(loss):
            return f"its loss is {loss}"
        if not math.isfinite(norm):
            return f"the norm of its gradient is {norm}"
        if self.config.explosion is not None and len(self._losses) >= _MIN_LOSSES:
            usual = statistics.median(self._losses)
            if loss > usual + self.config.explosion:
                return f"its loss is {loss:.2f} where {usual:.2f} is usual"
        return None
