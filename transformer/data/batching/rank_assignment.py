"""Assigns batches to ranks and updates, and finds the next batch of a resumed run.

Knows the numbers of batches only.
"""

from dataclasses import dataclass
from typing import Any

from transformer.data.batching.sampler import BatchSequence


@dataclass(frozen=True)
class RankAssignment:
    """Assignment of consecutive batches to ranks and updates.

    Update u takes the u-th group of ``ranks * accumulation`` batches, counted from the first batch
    with this assignment, and rank r every ``ranks``-th batch of them. The batches of an update
    depend on the product only.
    """

    ranks: int = 1
    accumulation: int = 1
    """Micro-batches of a rank."""

    @property
    def batches(self) -> int:
        """Batches of an update, over all ranks."""
        return self.ranks * self.accumulation


def next_batch(
    before: dict[str, Any] | None, done: int, row: BatchSequence, assignment: RankAssignment
) -> int:
    """Return the number of the first batch that a run has not used.

    Args:
        before: state of the loader of the run that is resumed; None: there is none.
        done: updates of the run, including those of the runs it resumes.
        row: the batches now.
        assignment: to ranks and updates now.
    """
    if before is None:
        return done * assignment.batches
    old = RankAssignment(before["ranks"], before["accumulation"])
    first: int = before["first"] + (done - before["since"]) * old.batches
    lengths = row.epoch_length, before["epoch_length"]
    if before["identity"] != row.identity() and lengths[0] and lengths[1]:
        # The same fraction of the same epoch.
        first = first * lengths[0] // lengths[1]
    return first
