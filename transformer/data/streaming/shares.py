"""What each rank has left of a stream, and how other ranks share it out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from transformer.common.errors import InputError
from transformer.data.streaming.shards import Count, Position


@dataclass(frozen=True, order=True)
class Rest:
    """The batches of a buffer that are left after so many are used."""

    position: Position
    used: Count = 0


@dataclass(frozen=True)
class Share:
    """What a rank has left: some rests, and after them its buffers from a position on."""

    rest: Sequence[Rest] = ()
    next: Position = field(default_factory=Position)

    @property
    def position(self) -> Position:
        """The first position of all this."""
        return min([self.next, *(each.position for each in self.rest)])


@dataclass(frozen=True)
class StreamState:
    """State of a stream in a checkpoint: what each rank has left before a batch."""

    first: Count
    """The number of the batch."""
    shards: str
    seed: int
    shares: Sequence[Share]

    def __post_init__(self) -> None:
        if not self.shares:
            raise InputError("the checkpoint has a stream, and no position in it; take another")


def shared_out(
    shares: Sequence[Share], skip: Callable[[Position], Position], ranks: int
) -> list[Share]:
    """Share out among other ranks what the ranks of ``shares`` have left; nothing twice.

    The rests, and the buffers that slower ranks did not reach before the position of the fastest,
    come first; from there on each rank has its own buffers again. ``skip`` returns the position of
    the next buffer.
    """
    rest = [each for share in shares for each in share.rest]
    position = min(share.next for share in shares)
    end = max(share.next for share in shares)
    while position < end:
        if position >= shares[position.rank(len(shares))].next:
            rest.append(Rest(position))
        position = skip(position)
    rest.sort()
    return [Share(rest[rank::ranks], end) for rank in range(ranks)]
