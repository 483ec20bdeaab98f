"""Group sentences of similar length into batches within a budget of tokens.

It knows lengths only.
"""

from collections.abc import Iterator, Sequence

from transformer.common.errors import InputError


def check_lengths(
    lengths: Sequence[int], most: int | None, purpose: str, *, first: int = 1
) -> None:
    """Refuse pairs with a side that the model has no positions for.

    Args:
        lengths: Pieces of the longer side of each pair, and the end of the sentence.
        most: How many positions there are; None if they do not end.
        purpose: What shall be done with the pairs.
        first: The number of the first pair.

    Raises:
        InputError: There is such a pair.
    """
    for number, length in enumerate(lengths, start=first):
        if most is not None and length > most:
            raise InputError(
                f"pair {number} has a side of {length - 1} pieces, and with the end of the "
                f"sentence model.max_length={most} has room for {most - 1}; leave it out to "
                f"{purpose} the others"
            )


def bucket_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Places of sentences, the longest first: what exceeds the memory does so at once.

    Args:
        lengths: Tokens that a sentence takes, all its hypotheses together.
        budget: The most padded tokens of a batch; a longer sentence makes a batch alone.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        # The first of a batch is its longest.
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def batches_apart(
    lengths: Sequence[int], kinds: Sequence[bool], budget: int
) -> Iterator[list[int]]:
    """The same of two kinds of sentences that cannot share a batch."""
    for kind in (False, True):
        alike = [index for index, own in enumerate(kinds) if own == kind]
        for batch in bucket_batches([lengths[index] for index in alike], budget):
            yield [alike[index] for index in batch]
