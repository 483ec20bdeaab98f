"""Shares of a row of batches: which of them an update takes, and which a run takes next.

Knows their numbers alone; does not make them.
"""

from dataclasses import dataclass
from typing import Any

from transformer.data.batching.sampler import BatchSequence


@dataclass(frozen=True)
class RankAssignment:
    """How the batches of a row are dealt out: each update takes the next few.

    Update u, counted from where these shares began, takes ``ranks * accumulation`` batches, and
    rank r every ``ranks``-th of them. What an update learns from depends on the product alone.
    """

    ranks: int = 1
    accumulation: int = 1
    """Micro-batches of a rank."""

    @property
    def batches(self) -> int:
        """Batches of an update, over all ranks."""
        return self.ranks * self.accumulation


def next_batch(
    before: dict[str, Any] | None, done: int, row: BatchSequence, shares: RankAssignment
) -> int:
    """Return the first batch that a run has not dealt out.

    Args:
        before: what the loader said when the run was broken off; None: it has been dealt out by
            these shares alone.
        done: updates that the run has made.
        row: the batches now.
        shares: how they are dealt out now.
    """
    if before is None:
        return done * shares.batches
    then = RankAssignment(before["ranks"], before["accumulation"])
    first: int = before["first"] + (done - before["since"]) * then.batches
    lengths = row.epoch_length, before["epoch_length"]
    if before["identity"] != row.identity() and lengths[0] and lengths[1]:
        # The same part of the same epoch.
        first = first * lengths[0] // lengths[1]
    return first
