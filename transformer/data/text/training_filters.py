"""Filters training pairs by length, ratio and duplicates, and counts what is left out.

Does not know files or batches; never applied to validation or test text.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

from transformer.common.errors import InputError

logger = logging.getLogger(__name__)

_REASONS = {
    "empty": ("with an empty side", ""),
    "length": ("longer than {max_length} tokens", " (data.max_length)"),
    "ratio": ("of a length ratio over {max_ratio}", " (data.max_ratio)"),
    "duplicate": ("exact duplicates", " (data.deduplicate)"),
}
"""Message for a reason, and the key that decides."""

# Fraction of a text that may be left out without a warning.
_FEW = 0.1


@dataclass(frozen=True)
class Filters:
    """Bounds on training pairs; a length is a number of subwords."""

    max_length: int
    """Maximum number of tokens of either side, without bos and eos."""
    max_ratio: float | None
    """Maximum ratio of the lengths of the longer and the shorter side; None: no bound."""
    deduplicate: bool
    """Keep only the first of equal pairs (both sides equal)."""

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

    def describe(self, split: str, dropped: Counter[str], read: int, unit: str = "pairs") -> str:
        """Return a line for the log: how many pairs are kept, and left out by reason."""
        line = f"{split}: {read - sum(dropped.values()):,} of {read:,} {unit} kept"
        reasons = [self._counted(dropped, reason) for reason in _REASONS if dropped[reason]]
        return f"{line}; left out: {', '.join(reasons)}" if reasons else line

    def report(
        self, split: str, dropped: Counter[str], read: int, limit: float = 1.0, unit: str = "pairs"
    ) -> bool:
        """Warn if more than a tenth of a training text is left out; return whether it is.

        Raises InputError if more than a fraction ``limit`` is, without repeated pairs.
        """
        left, duplicates = sum(dropped.values()), dropped["duplicate"]
        refused = left - duplicates > limit * (read - duplicates)
        if log_level(left, read) == logging.INFO and not refused:
            return False
        counted = [self._counted(dropped, r) + _REASONS[r][1] for r in _REASONS if dropped[r]]
        line = f"{split}: {left:,} of {read:,} {unit} ({left / read:.1%}) are left out: "
        line += ", ".join(counted)
        if refused:
            raise InputError(
                f"{line}; correct the text (transformer doctor shows its faults), set these keys "
                f"so that more stays, or data.max_left_out=1 (now {limit}) to train on the rest"
            )
        logger.warning("%s; set these keys so that more stays, if it is good", line)
        return True

    def _counted(self, dropped: Counter[str], reason: str) -> str:
        text = _REASONS[reason][0].format(max_length=self.max_length, max_ratio=self.max_ratio)
        return f"{dropped[reason]:,} {text}"


def log_level(left: int, read: int) -> int:
    """Return the level to log that ``left`` of ``read`` are left out: a warning above a tenth."""
    return logging.WARNING if left > _FEW * read else logging.INFO


@dataclass
class Selection:
    """Applies filters to pairs in their order, and counts what they leave out."""

    filters: Filters | None
    """None keeps all."""
    first: Bool[np.ndarray, " pair"] | None = None
    """Whether each pair is the first of equal ones; None keeps duplicates."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Numbers of pairs left out, by reason."""
    read: int = 0

    def keeps(self, source_length: int, target_length: int) -> bool:
        """Whether the next pair, of these lengths, is kept."""
        index, self.read = self.read, self.read + 1
        if self.filters is None:
            return True
        reason = self.filters.reason(source_length, target_length)
        if reason is None and self.first is not None and not self.first[index]:
            reason = "duplicate"
        if reason is not None:
            self.dropped[reason] += 1
        return reason is None


def first_occurrences(pairs: Iterable[tuple[str, str]]) -> Bool[np.ndarray, " pair"]:
    """Mark the pairs that do not occur earlier in the text.

    Texts are compared by 64-bit hashes, eight bytes of memory a pair: among ten million pairs
    the chance of a single false match is three in a million.
    """
    digests = np.fromiter((_digest(*pair) for pair in pairs), dtype=np.uint64)
    first = np.zeros(len(digests), dtype=bool)
    first[np.unique(digests, return_index=True)[1]] = True
    return first


def _digest(source: str, target: str) -> int:
    # A line has no line end, so that different pairs give different bytes.
    text = f"{source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
