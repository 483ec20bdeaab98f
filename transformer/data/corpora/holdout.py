"""Which pairs of a text are held out where no validation or test text is given.

That follows from what the pairs say: from neither a seed nor the order of the lines nor which side
is the source. A text that grows moves pairs from the held-out splits into training, and never the
other way. Does not know where texts come from.
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
from transformer.data.text.parallel import Corpus, Pair

logger = logging.getLogger(__name__)

# Bytes of a text that is looked through anew at each start: some ten thousand pairs.
_REMEMBERED = 2**22
# To be raised when other pairs are drawn.
_VERSION = 1


def hold_out(train: Split, sizes: Mapping[str, int], cache: Path) -> dict[str, Split]:
    """Return "train" without the pairs that make up other splits, and those.

    Of pairs that are equal, or would be with the sides swapped, the first is held out and none
    trained on.

    Args:
        train: the whole text.
        sizes: of the other splits.
        cache: remembers which pairs of a large text are held out.

    Raises:
        InputError: there are too few different pairs, or the text cannot be read.
    """
    corpus, links = train.corpus, train.links
    equal = _remembered(corpus, sum(sizes.values()), cache)
    if len(equal) < sum(sizes.values()) + 1:
        asked = " and ".join(f"data.{name}_size={size}" for name, size in sizes.items())
        raise InputError(
            f"{corpus.paths[0]} has {len(equal):,} different pairs, too few to hold out {asked}; "
            "set them lower, or give data.validation and data.test"
        )
    # The last would be the next to be held out.
    chosen = equal[:-1]
    leave = frozenset(line for lines in chosen for line in lines)
    splits, first = {"train": Split(corpus, leave, links=links)}, [lines[0] for lines in chosen]
    for name, size in sizes.items():
        splits[name] = Split(corpus, frozenset(first[:size]), inverted=False, links=links)
        first = first[size:]
    return splits


def log_held_out(name: str, left: int, splits: Mapping[str, object]) -> None:
    """Log how many pairs of a training text are held out, if any.

    Args:
        name: of the training text among the splits.
        left: how many pairs are not held out.
        splits: all there are, by name.
    """
    held, keys = len(_lines(splits[name])), list[str]()
    for split in ("validation", "test"):
        if size := len(_lines(splits.get(name.replace("train", split, 1)))):
            keys.append(f"data.{split}_size={size}")
    if held:
        logger.log(
            logging.WARNING if held > left else logging.INFO,
            f"{name}: {held:,} of {held + left:,} pairs are held out ({', '.join(keys)})",
        )


def _lines(split: object) -> frozenset[int]:
    return split.lines if isinstance(split, Split) else frozenset()


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
    """Return the lines of those pairs that have the smallest hashes, equal pairs together.

    A pair that is blank on both sides parts documents, and is none.
    """
    lines: dict[int, list[int]] = {}
    largest: list[int] = []  # the hashes, negative: heapq has the smallest on top
    for number, pair in enumerate(pairs):
        if not any(pair):
            continue
        value = _hash(pair)
        if value in lines:
            lines[value].append(number)
        elif len(largest) < wanted:
            heapq.heappush(largest, -value)
            lines[value] = [number]
        elif value < -largest[0]:
            # What leaves cannot come back: the largest only falls.
            del lines[-heapq.heapreplace(largest, -value)]
            lines[value] = [number]
    return [lines[value] for value in sorted(lines)]


def _hash(pair: Pair) -> int:
    # No side holds a line feed.
    text = "\n".join(sorted(pair)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
