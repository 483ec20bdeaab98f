"""The pairs that choices about a trained model are made on: of its run's validation text, no other.

It does not know what is chosen.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from transformer.common.errors import InputError, MissingFile
from transformer.data.config import DataConfig
from transformer.data.corpus import Pair
from transformer.data.splits import find_splits


def validation_pairs(config: DataConfig, sentences: int | None) -> list[Pair]:
    """The first so many pairs, in their order; None takes all.

    Raises:
        InputError: There is none, the number is below 1, or as `find_splits`.
    """
    if sentences is not None and sentences < 1:
        raise InputError(f"sentences={sentences} must be at least 1, or null")
    with named_by_run():
        split = find_splits(config)["validation"]
        pairs = list(islice(split, sentences))
    if not pairs:
        raise InputError(f"{split.place}: the validation text of the run is empty; fill it again")
    return pairs


@contextmanager
def named_by_run() -> Iterator[None]:
    """Say of a missing file that the config of a run names it, not the call.

    Raises:
        MissingFile: There is one.
    """
    try:
        yield
    except MissingFile as error:
        raise MissingFile(
            f"{error}; the config of the run names it so: call it from the folder where the "
            "run was trained"
        ) from error
