"""Cut a text that is too long for the model into parts that are not.

It knows pieces as they are spelt in the vocabulary, and neither the model nor translations.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformer.data.tokenization.subword_regularization import WORD_START
from transformer.decoding.constraints.request import Constraints

log = logging.getLogger(__name__)

SENTENCE_ENDS = (".", "!", "?", "\u2026", "。", "！", "？")


@dataclass(frozen=True)
class Segment:
    """A part of a text, mostly all of it, in source pieces; and what its translation is asked."""

    subwords: list[int]
    constraints: Constraints | None = None
    is_part: bool = False
    """Whether there are others of the same text."""


def split_segments(
    subwords: list[int],
    lengths: Sequence[int],
    constraints: Constraints | None,
    tags: Sequence[int] = (),
) -> list[Segment]:
    """Cut a text into parts of these lengths, and share out what is asked of it.

    Each begins with the tags. The first part has the prefix, every part what never is allowed. In
    which part a must-phrase belongs is not known: it is asked of none, and is there by luck or
    unmet.
    """
    if len(lengths) < 2 or constraints is None:
        parts = [constraints] * len(lengths)
    else:
        rest = replace(constraints, prefix="", must=())
        parts = [replace(constraints, must=()), *[rest] * (len(lengths) - 1)]
    left = iter(subwords)
    return [
        Segment([*tags, *(next(left) for _ in range(length))], part, len(lengths) > 1)
        for length, part in zip(lengths, parts, strict=True)
    ]


def segment_lengths(subwords: Sequence[str], most: int) -> list[int]:
    """Lengths of consecutive parts of at most ``most`` pieces each.

    A part ends where a sentence ends, else before a word, else wherever it is full.
    """
    lengths = []
    start = 0
    while len(subwords) - start > most:
        cuts = [
            cut for cut in range(start + most, start, -1) if subwords[cut].startswith(WORD_START)
        ]
        ends = [cut for cut in cuts if subwords[cut - 1].endswith(SENTENCE_ENDS)]
        cut = (ends or cuts or [start + most])[0]
        lengths.append(cut - start)
        start = cut
    return [*lengths, len(subwords) - start]


def warn_about_segments(counts: Sequence[int], names: Sequence[str], most: int | None) -> None:
    """Say, once, which texts are too long for the model.

    Args:
        counts: Segments of each text.
        names: Of the texts, such as "stdin:5"; empty where they have none.
        most: ``model.max_length``.
    """
    cut = [index for index, count in enumerate(counts) if count > 1]
    if cut:
        log.warning(
            "%s%s: longer than model.max_length=%s allows; translated in %d segments",
            names[cut[0]] if names else "a text",
            f" and {len(cut) - 1} more" if cut[1:] else "",
            *(most, sum(counts[index] for index in cut)),
        )
