"""Checks before training that the sentences fit the positions of a model."""

from collections.abc import Callable, Iterable

from transformer.common.errors import InputError


def check_training_lengths(
    lengths: Iterable[int], positions: int | None, where: Callable[[int], str]
) -> None:
    """Check the lengths of the sentences of a text.

    Args:
        lengths: tokens of each sentence, without bos and eos, one of which takes a position too.
        positions: of the model (``model.max_length``); None: unlimited.
        where: returns the file and line of a sentence, given its index in ``lengths``.

    Raises:
        InputError: a sentence does not fit.
    """
    needed = [length + 1 for length in lengths]
    for index, length in enumerate(needed):
        if positions is not None and length > positions:
            raise InputError(
                f"{where(index)}: a sentence of {length} tokens does not fit "
                f"model.max_length={positions} with model.positions=learned; shorten it, or set "
                f"model.max_length={max(needed)}"
            )
