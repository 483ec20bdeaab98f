"""Group sentences of similar length into batches within a budget of tokens."""

from collections.abc import Iterable, Iterator, Sequence, Sized

from transformer.common.errors import InputError


def pair_lengths(pairs: Iterable[tuple[Sized, Sized]]) -> list[int]:
    """Tokens of the longer side of each pair, the end of the sentence included."""
    return [max(map(len, pair)) + 1 for pair in pairs]


def check_lengths(
    pairs: Iterable[tuple[Sized, Sized]], limit: int | None, purpose: str, *, first: int = 1
) -> None:
    """Raise InputError if a pair is too long to ``purpose`` it; ``first`` numbers the pairs."""
    for number, length in enumerate(pair_lengths(pairs), start=first):
        if limit is not None and length > limit:
            raise InputError(
                f"pair {number} has a side of {length - 1} subwords, and with the end of the "
                f"sentence model.max_length={limit} has room for {limit - 1}; leave it out to "
                f"{purpose} the others"
            )


def bucket_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of sentences in batches of at most ``budget`` padded tokens, or of one sentence."""
    batch: list[int] = []
    # The longest first, so that an out-of-memory error shows at once.
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        # The first of a batch is its longest.
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
