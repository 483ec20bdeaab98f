"""Disturbs text: the disturbances of ``stress``, and those of training pairs (augmentation).

First changes of one text, then the catalog of disturbances of a test text, then augmentation. Each
is a pure function of the text and a random generator or seed. They are not natural errors: rules
make them, so that all runs are measured alike.

``upper`` and ``title``: Bogoychev et al. 2023 (OpusTrainer, arXiv 2311.14838, section 3), also the
source of augmentation. ``lower``, ``missing_blank`` and ``emoji``: Dhole et al. 2021, arXiv
2112.02721. Typos: Belinkov and Bisk 2018, arXiv 1711.02173, section 3.2; Karpukhin et al. 2019,
arXiv 1902.01509, section 2. ``numbers``: Wang et al. 2021, arXiv 2107.08357. ``joined``: Kondo et
al. 2021, naacl-srw.18. Copied noise: Khayrallah and Koehn 2018 (W18-2709). The others are our own.
"""

import html
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from random import Random
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.text.parallel import Pair
from transformer.data.tokenization.normalization import normalize
from transformer.settings.data import AugmentationConfig

Change = Callable[[str, Random], str]


_WORD = re.compile(r"\w+(?:['’]\w+)*")


# The letters of a word that may have a typo: shorter words often become another word.
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")


_FINAL = re.compile(r"\s*[.!?…。！？]+\s*\Z")


_NUMBER = re.compile(r"\d+")


_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


# Neighbors in a row of a QWERTY keyboard.
_NEIGHBORS = {
    letter: row[max(index - 1, 0) : index] + row[index + 1 : index + 2]
    for row in _ROWS
    for index, letter in enumerate(row)
}


_EMOJI = ("😀", "😂", "👍", "🎉", "❤️", "🐶", "★", "✓", "→", "©", "#", "~")


_QUOTES = (("“", "”"), ("„", "“"), ("«", "»"), ("「", "」"))


_FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}


_NOISE = string.ascii_letters + string.digits + "#&*+-/:=@_"


def upper(text: str, random: Random) -> str:
    """Write all in capitals."""
    return text.upper()


def title(text: str, random: Random) -> str:
    """Begin each word with a capital."""
    return _WORD.sub(lambda word: word[0][0].title() + word[0][1:], text)


def lower(text: str, random: Random) -> str:
    """Write nothing in capitals."""
    return text.lower()


def without_final_punctuation(text: str, random: Random) -> str:
    """Remove the final punctuation; a text of nothing else stays."""
    return _FINAL.sub("", text) or text


def doubled_final_punctuation(text: str, random: Random) -> str:
    """Write the last of the final punctuation twice."""
    final = _FINAL.search(text)
    return text.rstrip() + final[0].strip()[-1] if final else text


def typo(text: str, random: Random) -> str:
    """Swap, drop or double a letter, or hit a key beside it, in a word of four letters or more."""
    words = list(_LONG_WORD.finditer(text))
    if not words:
        return text
    word = random.choice(words)
    index = random.randrange(word.start() + 1, word.end() - 1)
    letter, following = text[index], text[index + 1]
    key = random.choice(_NEIGHBORS.get(letter.lower(), letter))
    kinds = (
        following + letter,
        following,
        letter * 2 + following,
        (key.upper() if letter.isupper() else key) + following,
    )
    # Swapping equal letters, or a key without known neighbors, changes nothing.
    typos = [kind for kind in kinds if kind != letter + following]
    return text[:index] + random.choice(typos) + text[index + 2 :]


def three_typos(text: str, random: Random) -> str:
    """Make three typos, perhaps in one word."""
    return typo(typo(typo(text, random), random), random)


def missing_blank(text: str, random: Random) -> str:
    """Remove one blank between two words."""
    blanks = [match.start() for match in re.finditer(r"(?<=\w) (?=\w)", text)]
    if not blanks:
        return text
    index = random.choice(blanks)
    return text[:index] + text[index + 1 :]


def emoji(text: str, random: Random) -> str:
    """Add an emoji or symbol as a word at the end."""
    return f"{text.rstrip()} {random.choice(_EMOJI)}"


def other_numbers(text: str, random: Random) -> str:
    """Replace each digit but 0 by another, drawn once for all equal digits."""
    digits = random.sample("123456789", 9)
    return text.translate(str.maketrans("".join(digits), "".join(digits[1:] + digits[:1])))


def numbers(text: str) -> list[str]:
    """Return the numbers of a text, sorted."""
    return sorted(_NUMBER.findall(text))


def html_entities(text: str, random: Random) -> str:
    """Escape markup, quotes and characters beyond ASCII, and write one blank as ``&nbsp;``."""
    escaped = html.escape(text).encode("ascii", "xmlcharrefreplace").decode()
    blanks = [index for index, character in enumerate(escaped) if character == " "]
    if not blanks:
        return escaped
    index = random.choice(blanks)
    return f"{escaped[:index]}&nbsp;{escaped[index + 1 :]}"


def other_quotes(text: str, random: Random) -> str:
    """Replace straight quotes by a pair of another kind, and straight apostrophes by U+2019."""
    before, after = random.choice(_QUOTES)
    text = re.sub(r'"([^"]*)"', rf"{before}\1{after}", text)
    return text.replace("'", "’")


def full_width(text: str, random: Random) -> str:
    """Write ASCII characters in their full width forms (Unicode block FF00); blanks stay."""
    return text.translate(_FULL_WIDTH)


def noise(text: str, random: Random) -> str:
    """Replace the text by one to four words of random characters, not more than it has."""
    count = random.randint(1, max(1, min(4, text.count(" ") + 1)))
    return " ".join("".join(random.choices(_NOISE, k=random.randint(2, 5))) for _ in range(count))


Window = Sequence[Pair]


@dataclass(frozen=True)
class Disturbance:
    """A change of a window of pairs to one pair: a pure function of the texts and the generator."""

    name: str
    change: Callable[[Window, Random], Pair]
    reference: Literal["same", "changed", "none"]
    """The reference: that of the clean text, the same with the change, or unknown."""
    window: int | None = 1
    """Number of consecutive pairs that make one; None: the whole text."""


def _source(change: Change) -> Callable[[Window, Random], Pair]:
    return lambda window, random: (change(window[0][0], random), window[0][1])


def _both(change: Change) -> Callable[[Window, Random], Pair]:
    """Change both sides with equal generators, unless the source does not change."""

    def changed(window: Window, random: Random) -> Pair:
        source, target = window[0]
        seed = random.random()
        changed_source = change(source, Random(seed))
        if changed_source == source:
            return source, target
        return changed_source, change(target, Random(seed))

    return changed


def _numbers(window: Window, random: Random) -> Pair:
    """Change the digits if both sides have the same numbers."""
    source, target = window[0]
    if numbers(source) != numbers(target):
        return window[0]
    return _both(other_numbers)(window, random)


def _joined(window: Window, random: Random) -> Pair:
    sources, targets = zip(*window, strict=True)
    return " ".join(sources), " ".join(targets)


def _twice(window: Window, random: Random) -> Pair:
    return _joined([window[0], window[0]], random)


def _single_word(window: Window, random: Random) -> Pair:
    source, _ = window[0]
    return random.choice(source.split()), ""


def _other_language(window: Window, random: Random) -> Pair:
    """Give the target as the source."""
    _, target = window[0]
    return target, target


def _empty(window: Window, random: Random) -> Pair:
    return "", ""


DISTURBANCES = {
    disturbance.name: disturbance
    for disturbance in (
        Disturbance("upper", _both(upper), "changed"),
        Disturbance("title", _both(title), "changed"),
        Disturbance("lower", _source(lower), "same"),
        Disturbance("no_final_punctuation", _both(without_final_punctuation), "changed"),
        Disturbance("doubled_final_punctuation", _source(doubled_final_punctuation), "same"),
        Disturbance("typo_1", _source(typo), "same"),
        Disturbance("typo_3", _source(three_typos), "same"),
        Disturbance("missing_blank", _source(missing_blank), "same"),
        Disturbance("emoji", _both(emoji), "changed"),
        Disturbance("numbers", _numbers, "changed"),
        Disturbance("html_entities", _source(html_entities), "same"),
        Disturbance("quotes", _source(other_quotes), "same"),
        Disturbance("full_width", _source(full_width), "same"),
        Disturbance("single_word", _single_word, "none"),
        Disturbance("joined", _joined, "changed", window=2),
        Disturbance("twice", _twice, "changed"),
        Disturbance("other_language", _other_language, "none"),
        Disturbance("empty", _empty, "same", window=None),
        Disturbance("very_long", _joined, "none", window=50),
    )
}


Links = Int[np.ndarray, "link 2"]


UNCHANGED = -1
"""Kind of a pair that nothing """


KINDS = tuple(field.name for field in fields(AugmentationConfig))


JOINED = KINDS.index("joined")


class Linked(NamedTuple):
    """A pair, and its links of words if the training has them."""

    pair: Pair
    links: Links | None = None


def drawn_kinds(
    config: AugmentationConfig, seeds: Int[np.ndarray, " pair"]
) -> Int[np.ndarray, " pair"]:
    """Return the index in `KINDS` of the disturbance of each pair, or UNCHANGED; seeds: 32 bits."""
    bounds = np.cumsum(astuple(config)) * 2.0**32
    kinds = np.searchsorted(bounds, seeds, side="right").astype(np.int8)
    return np.where(kinds < len(KINDS), kinds, np.int8(UNCHANGED))


def disturbed(kind: int, seed: int, clean: Linked, following: Linked) -> Linked:
    """Return a pair changed by a disturbance; ``following`` is joined to it by ``joined``."""
    if kind == JOINED:
        return _joined_linked(clean, following)
    pair = _changed(KINDS[kind], clean.pair, seed)
    if clean.links is None:
        return Linked(pair)
    return Linked(pair, _relinked(clean, pair, noise=KINDS[kind] == "noise"))


def _changed(name: str, pair: Pair, seed: int) -> Pair:
    source, target = pair
    random = Random(seed)
    if name == "noise":
        copied = noise(source, random)
        return copied, copied
    if name == "typos":
        for _ in range(random.randint(1, 3)):
            source = typo(source, random)
        return source, target
    if name == "punctuation":
        name = random.choice(("no_final_punctuation", "doubled_final_punctuation"))
    if name == "blanks":
        name = "missing_blank"
    return DISTURBANCES[name].change([pair], random)


def _joined_linked(first: Linked, second: Linked) -> Linked:
    pair = f"{first.pair[0]} {second.pair[0]}", f"{first.pair[1]} {second.pair[1]}"
    if first.links is None or second.links is None:
        return Linked(pair)
    # Words of the second pair are counted after those of the first.
    offsets = [len(normalize(text).split(" ")) for text in first.pair]
    links = [first.links, second.links + np.array(offsets, np.int32)]
    return Linked(pair, np.concatenate(links))


def _relinked(clean: Linked, changed: Pair, *, noise: bool) -> Links:
    """Return the links of the words of a changed pair."""
    source, target = (normalize(text).split(" ") for text in changed)
    if noise:
        return np.repeat(np.arange(len(source), dtype=np.int32)[:, None], 2, axis=1)
    assert clean.links is not None
    links = clean.links.copy()
    clean_source = normalize(clean.pair[0]).split(" ")
    if len(source) < len(clean_source) and source != clean_source[: len(source)]:
        # Two words of the source have become one: the words after it move.
        merged = next(i for i, word in enumerate(source) if word != clean_source[i])
        links[:, 0] -= links[:, 0] > merged
    # Final punctuation that was a word of its own may be gone.
    return links[(links < [len(source), len(target)]).all(axis=1)]
