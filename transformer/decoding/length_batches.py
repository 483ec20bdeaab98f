"""Group sentences of similar length into batches within a budget of tokens.

It knows lengths only.
"""

from collections.abc import Iterator, Sequence


def batches_of(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Places of sentences, the longest first: what exceeds the memory does so at once.

    Args:
        lengths: Tokens that a sentence takes, all its hypotheses together.
        budget: The most padded tokens of a batch; a longer sentence makes a batch alone.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        # The first of a batch is its longest.
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def batches_apart(
    lengths: Sequence[int], kinds: Sequence[bool], budget: int
) -> Iterator[list[int]]:
    """The same of two kinds of sentences that cannot share a batch."""
    for kind in (False, True):
        alike = [place for place, own in enumerate(kinds) if own == kind]
        for batch in batches_of([lengths[place] for place in alike], budget):
            yield [alike[place] for place in batch]
