"""Holds pairs out of a training text if no validation or test text is given.

The choice depends on the content of the pairs only, not on a seed, the order of the lines or the
direction. When a text grows, pairs move from the held-out splits into training, never the other
way. Does not know where texts come from.
"""

import hashlib
import heapq
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from transformer.common.cache import locked, remembered
from transformer.common.errors import InputError
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import AnotherTarget, Corpus, Pair

logger = logging.getLogger(__name__)

# A smaller text (in bytes; some ten thousand pairs) is searched again at each start.
_REMEMBERED = 2**22
# To be raised when the choice of pairs changes.
_VERSION = 1


def hold_out(train: Split, sizes: Mapping[str, int], cache: Path) -> dict[str, Split]:
    """Return "train" without the held-out pairs, and the held-out splits of these sizes.

    Of pairs that are equal, perhaps with the sides swapped, the first is held out and none is used
    for training. The cache remembers which pairs of a large text are held out. Raises InputError
    if there are too few different pairs, or the text cannot be read.
    """
    corpus, links = train.corpus, train.links
    equal = _remembered(corpus, sum(sizes.values()), cache)
    if len(equal) < sum(sizes.values()) + 1:
        keys = " and ".join(f"data.{name}_size={size}" for name, size in sizes.items())
        raise InputError(
            f"{corpus.paths[0]} has {len(equal):,} different pairs, too few to hold out {keys}; "
            "set them lower, or give data.validation and data.test"
        )
    chosen = equal[:-1]
    leave = frozenset(line for lines in chosen for line in lines)
    splits, first = {"train": Split(corpus, leave, links=links)}, [lines[0] for lines in chosen]
    for name, size in sizes.items():
        splits[name] = Split(corpus, frozenset(first[:size]), inverted=False, links=links)
        first = first[size:]
    return splits


def log_held_out(name: str, left: int, splits: Mapping[str, object]) -> None:
    """Log how many pairs of the training split ``name`` are held out; ``left`` are not."""
    keys = []
    for kind in ("validation", "test"):
        split = splits.get(name.replace("train", kind, 1))
        if isinstance(split, Split) and split.lines:
            keys.append(f"data.{kind}_size={len(split.lines)}")
    train = splits[name]
    if isinstance(train, Split) and (held := len(train.lines)):
        logger.log(
            logging.WARNING if held > left else logging.INFO,
            f"{name}: {held:,} of {held + left:,} pairs are held out ({', '.join(keys)})",
        )


def _remembered(corpus: Corpus, wanted: int, cache: Path) -> list[list[int]]:
    """Return `_smallest` of the pairs of a corpus, one more than are wanted."""
    if sum(path.stat().st_size for path in corpus.paths if path.is_file()) < _REMEMBERED:
        return _smallest(corpus, wanted + 1)
    with locked(cache):
        question = f"lines held out {_VERSION}: {wanted} of {corpus.fingerprint(cache)}"
        found = remembered(cache, question, lambda: json.dumps(_smallest(corpus, wanted + 1)))
    lines: list[list[int]] = json.loads(found)
    return lines


def _smallest(pairs: Iterable[Pair], wanted: int) -> list[list[int]]:
    """Return the lines of the pairs with the smallest hashes, equal pairs together.

    A pair that is blank on both sides separates documents, and is ignored.
    """
    lines: dict[int, list[int]] = {}
    largest: list[int] = []  # negative hashes, since heapq has the smallest on top
    value = 0
    for number, pair in enumerate(pairs):
        another = isinstance(pair[1], AnotherTarget)  # goes with the pair before it
        if not any(pair) or (another and value not in lines):
            continue
        value = value if another else _hash(pair)
        if value in lines:
            lines[value].append(number)
        elif len(largest) < wanted:
            heapq.heappush(largest, -value)
            lines[value] = [number]
        elif value < -largest[0]:
            # A removed hash cannot come back: the largest only falls.
            del lines[-heapq.heapreplace(largest, -value)]
            lines[value] = [number]
    return [lines[value] for value in sorted(lines)]


def _hash(pair: Pair) -> int:
    # No side holds a line feed.
    text = "\n".join(sorted(pair)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
