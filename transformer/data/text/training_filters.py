"""Filters training pairs by length, ratio and duplicates, and counts the pairs left out."""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from transformer.common.errors import InputError
from transformer.data.text.lines import text_hash

logger = logging.getLogger(__name__)

_REASONS = {
    "empty": "with an empty side",
    "length": "longer than {0.max_length} tokens (data.max_length)",
    "ratio": "of a length ratio over {0.max_ratio} (data.max_ratio)",
    "duplicate": "exact duplicates (data.deduplicate)",
}

# Fraction of a text that may be left out without a warning.
_FEW = 0.1


@dataclass(frozen=True)
class Filters:
    """Bounds on training pairs; a length is a number of subwords."""

    max_length: int
    max_ratio: float | None
    deduplicate: bool

    def reason(self, source_length: int, target_length: int) -> str | None:
        """Return why a pair of these lengths is left out, or None if it is kept."""
        shorter, longer = sorted((source_length, target_length))
        if shorter == 0:
            return "empty"
        if longer > self.max_length:
            return "length"
        if self.max_ratio is not None and longer > self.max_ratio * shorter:
            return "ratio"
        return None

    def report(
        self, split: str, dropped: Counter[str], read: int, limit: float = 1.0, unit: str = "pairs"
    ) -> None:
        """Log the pairs kept, and left out by reason; InputError if these are over ``limit``."""
        left_out = dropped.total()
        duplicates = dropped["duplicate"]
        line = f"{split}: {read - left_out:,} of {read:,} {unit} kept"
        if left_out:
            reasons = [
                f"{dropped[reason]:,} {text.format(self)}"
                for reason, text in _REASONS.items()
                if dropped[reason]
            ]
            line += f"; left out ({left_out / read:.1%}): {', '.join(reasons)}"
        if left_out - duplicates > limit * (read - duplicates):
            raise InputError(
                f"{line}; correct the text (transformer doctor shows its faults), set these keys "
                f"so that more stays, or data.max_left_out=1 (now {limit}) to train on the rest"
            )
        level = log_level(left_out, read)
        if level == logging.WARNING:
            line += "; set these keys so that more stays, if the text is good"
        logger.log(level, line)


def log_level(left_out: int, read: int) -> int:
    """Return the level for a message about left-out pairs: a warning above a tenth of all."""
    return logging.WARNING if left_out > _FEW * read else logging.INFO


def first_occurrences(pairs: Iterable[tuple[str, str]]) -> Bool[np.ndarray, " pair"]:
    """Mark the pairs that do not occur earlier in the text, by 64-bit hashes."""
    digests = np.fromiter((text_hash(*pair) for pair in pairs), dtype=np.uint64)
    first = np.zeros(len(digests), dtype=bool)
    first[np.unique(digests, return_index=True)[1]] = True
    return first
