"""Mends what is wrong with the characters of a pair, and not with what it says.

Double encodings are decoded, invisible characters removed, odd blanks made one space. Does not know
files.
"""

import html
import re
from collections.abc import Callable
from typing import NamedTuple

from transformer.data.quality.checks.one_side.characters import visible, with_plain_blanks
from transformer.data.quality.checks.one_side.encoding_damage import Decoder
from transformer.data.quality.checks.one_side.markup import ENTITY, find_markup, is_entity
from transformer.data.quality.pair import NumberedPair

_Texts = list[str]


class Repaired(NamedTuple):
    """A pair after its repair."""

    pair: NumberedPair
    repairs: tuple[str, ...]
    """What was done: "encoding", "entities", "invisible", "blanks"."""


class Repair:
    """Repairs pairs; without ftfy, all but encodings."""

    def __init__(self) -> None:
        try:
            decoded: Callable[[str], str] = Decoder()
        except ImportError:
            decoded = str
        # What one step leaves, the next may have to mend: an entity may be invisible or a tab.
        self._steps: dict[str, Callable[[_Texts], _Texts]] = {
            "encoding": lambda texts: [decoded(text) for text in texts],
            "entities": _without_entities,
            "invisible": lambda texts: [visible(text) for text in texts],
            "blanks": lambda texts: [with_plain_blanks(text) for text in texts],
        }

    def __call__(self, pair: NumberedPair) -> Repaired:
        """Return the pair as it should be."""
        texts, repairs = [pair.source, pair.target], []
        for name, step in self._steps.items():
            mended = step(texts)
            if mended != texts:
                texts = mended
                repairs.append(name)
        mended_pair = pair._replace(source=texts[0], target=texts[1]) if repairs else pair
        return Repaired(mended_pair, tuple(repairs))


def _without_entities(texts: _Texts) -> _Texts:
    """Decode entities of one side alone: on both sides they may be what the text is about."""
    found = [find_markup(text) for text in texts]
    if sum(one is not None for one in found) != 1:
        return texts
    return [
        ENTITY.sub(_decoded, text) if one is not None and ENTITY.fullmatch(one[0]) else text
        for text, one in zip(texts, found, strict=True)
    ]


def _decoded(found: re.Match[str]) -> str:
    """Return what an entity means; HTML would also decode the beginning of other names."""
    return html.unescape(found[0]) if is_entity(found) else found[0]
