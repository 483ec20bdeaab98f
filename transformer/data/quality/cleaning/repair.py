"""Repairs the characters of a pair, not its content.

Double encodings are decoded, entities of one side decoded, invisible characters removed, and odd
blanks become one space.
"""

import html
import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec

from transformer.data.quality.base import NumberedPair
from transformer.data.quality.checks import characters
from transformer.data.quality.checks.markup import ENTITY, find_markup, is_entity

Repaired = tuple[NumberedPair, tuple[str, ...]]
"""A pair, and what was repaired: "encoding", "entities", "invisible", "blanks"."""


def make_repair() -> Callable[[NumberedPair], Repaired]:
    """Return a function that repairs pairs; without ftfy, it leaves encodings as they are."""
    # In this order: a decoded entity may be invisible or a tab.
    steps: dict[str, Callable[[list[str]], Iterable[str]]] = {
        "encoding": partial(map, characters.undo_wrong_encoding),
        "entities": _decode_entities,
        "invisible": partial(map, characters.remove_invisible),
        "blanks": partial(map, characters.normalize_blanks),
    }
    if find_spec("ftfy") is None:
        del steps["encoding"]

    def repair(pair: NumberedPair) -> Repaired:
        texts, repairs = [*pair.texts], []
        for name, step in steps.items():
            before, texts = texts, [*step(texts)]
            if texts != before:
                repairs.append(name)
        return pair._replace(source=texts[0], target=texts[1]), tuple(repairs)

    return repair


def _decode_entities(texts: list[str]) -> list[str]:
    """Decode entities of one side alone: on both sides the text may be about them."""
    found = [find_markup(text) for text in texts]
    if found.count(None) != 1:
        return texts
    return [
        ENTITY.sub(_decoded, text) if match is not None and ENTITY.fullmatch(match[0]) else text
        for text, match in zip(texts, found, strict=True)
    ]


def _decoded(found: re.Match[str]) -> str:
    """Return what an entity stands for; html.unescape alone also decodes prefixes of names."""
    return html.unescape(found[0]) if is_entity(found) else found[0]
