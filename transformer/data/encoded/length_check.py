"""Refuses sentences that a model has no positions for, before it is trained.

It does not know where a sentence stands, nor which models are bounded.
"""

from collections.abc import Callable, Iterable

from transformer.common.errors import InputError


def check_training_lengths(
    lengths: Iterable[int], positions: int | None, where: Callable[[int], str]
) -> None:
    """Refuse the first sentence of a text that does not fit.

    Args:
        lengths: tokens of each sentence; beside them each takes a position for its bos or eos.
        positions: that the model has (``model.max_length``); None: as many as need be.
        where: called with the place of the sentence in ``lengths``; says where it stands.

    Raises:
        InputError: there is one.
    """
    if positions is None:
        return
    taken = [length + 1 for length in lengths]
    for index, length in enumerate(taken):
        if length > positions:
            raise InputError(
                f"{where(index)}: a sentence of {length} tokens does not fit "
                f"model.max_length={positions} with model.positions=learned; shorten it, or set "
                f"model.max_length={max(taken)}"
            )
