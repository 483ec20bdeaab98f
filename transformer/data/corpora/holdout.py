"""Holds out pairs by their content: when a text grows, pairs move into training, never back."""

import heapq
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from transformer.common.errors import InputError
from transformer.common.files import locked, remembered
from transformer.data.corpora.split import Split
from transformer.data.text.lines import text_hash
from transformer.data.text.parallel import AnotherTarget, Pair

Lines = list[list[int]]
"""Two lists: lines of a pair that is held out with its targets, and of pairs that equal it."""

logger = logging.getLogger(__name__)

# A smaller text (in bytes; some ten thousand pairs) is searched again at each start.
_REMEMBERED = 2**22
# To be raised when the choice of pairs changes.
_VERSION = 2


def hold_out(train: Split, sizes: Mapping[str, int], cache: Path) -> dict[str, Split]:
    """Return "train" without the held-out pairs, and the held-out splits of these sizes.

    A pair is held out together with its `AnotherTarget`s or, if ``train.repeated_sources``, with
    all pairs of its source. Of equal pairs, also with swapped sides, the first is held out, and
    training uses none. Raises InputError if there are too few different pairs.
    """
    corpus, repeated = train.corpus, train.repeated_sources
    wanted = sum(sizes.values())

    def find() -> str:
        return json.dumps(_smallest(corpus, wanted + 1, repeated))

    if sum(path.stat().st_size for path in corpus.paths if path.is_file()) < _REMEMBERED:
        equal = json.loads(find())
    else:
        with locked(cache):
            text = f"{corpus.fingerprint(cache)} {repeated}"
            question = f"lines held out {_VERSION}: {wanted} of {text}"
            equal = json.loads(remembered(cache, question, find))
    if len(equal) <= wanted:
        keys = " and ".join(f"data.{name}_size={size}" for name, size in sizes.items())
        raise InputError(
            f"{corpus.paths[0]} has {len(equal):,} different pairs, too few to hold out {keys}; "
            "set them lower, or give data.validation and data.test"
        )
    chosen = equal[:-1]
    leave = frozenset(line for kept, left_out in chosen for line in kept + left_out)
    splits = {"train": replace(train, lines=leave)}
    for name, size in sizes.items():
        lines = frozenset(line for kept, _ in chosen[:size] for line in kept)
        splits[name] = replace(train, lines=lines, inverted=False)
        chosen = chosen[size:]
    return splits


def log_held_out(name: str, left: int, train: Split) -> None:
    """Log how many pairs of the training split ``name`` are held out; ``left`` are not."""
    if held := len(train.lines):
        level, keys = logging.INFO, "data.validation_size, data.test_size"
        if held > left:
            level = logging.WARNING
        logger.log(level, f"{name}: {held:,} of {held + left:,} pairs are held out ({keys})")


def _smallest(pairs: Iterable[Pair], wanted: int, repeated: bool) -> list[Lines]:
    """Return the lines of the pairs with the smallest hashes, equal pairs together.

    With ``repeated``, pairs of equal sources are one pair with several targets. A pair that is
    blank on both sides separates documents, and is ignored.
    """
    lines: dict[int, Lines] = {}
    largest: list[int] = []  # negative hashes, since heapq has the smallest on top
    value, kept = 0, True
    for number, pair in enumerate(pairs):
        another = isinstance(pair[1], AnotherTarget)  # goes with the pair before it
        if not any(pair) or (another and value not in lines):
            continue
        if not another:
            by_source = repeated and bool(pair[0])
            value = text_hash(*sorted(pair[:1] if by_source else pair))
            kept = by_source or value not in lines
        if value not in lines:
            if len(largest) == wanted:
                if value >= -largest[0]:
                    continue
                # A removed hash cannot come back: the largest only falls.
                del lines[-heapq.heappop(largest)]
            heapq.heappush(largest, -value)
            lines[value] = [[], []]
        lines[value][not kept].append(number)
    return [lines[value] for value in sorted(lines)]
