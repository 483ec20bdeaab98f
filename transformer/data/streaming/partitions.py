"""What each rank has left of a stream, and its assignment to another number of ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from transformer.common.errors import InputError
from transformer.data.streaming.shards import Count, Position


@dataclass(frozen=True, order=True)
class Pending:
    """A buffer of which so many batches are used."""

    position: Position
    used: Count = 0


@dataclass(frozen=True)
class Partition:
    """What a rank has left: some buffers, and after them all of its own from a position on."""

    pending: Sequence[Pending] = ()
    next: Position = field(default_factory=Position)

    @property
    def position(self) -> Position:
        """The earliest position."""
        return min([self.next, *(each.position for each in self.pending)])


@dataclass(frozen=True)
class StreamState:
    """State of a stream in a checkpoint: what each rank has left before a batch."""

    first: Count
    """The number of the batch."""
    shards: str
    seed: int
    partitions: Sequence[Partition]

    def __post_init__(self) -> None:
        if not self.partitions:
            raise InputError("the checkpoint has a stream, and no position in it; take another")


def repartition(
    partitions: Sequence[Partition], skip: Callable[[Position], Position], ranks: int
) -> list[Partition]:
    """Assign what the ranks of ``partitions`` have left to ``ranks`` others, each buffer once.

    First come their pending buffers, and those that slower ranks did not reach before the position
    of the fastest; from there on each rank has its own buffers again. ``skip`` returns the position
    of the next buffer.
    """
    pending = [each for partition in partitions for each in partition.pending]
    position = min(partition.next for partition in partitions)
    end = max(partition.next for partition in partitions)
    while position < end:
        if position >= partitions[position.rank(len(partitions))].next:
            pending.append(Pending(position))
        position = skip(position)
    pending.sort()
    return [Partition(pending[rank::ranks], end) for rank in range(ranks)]
