"""Outputs that fail in a known way, made by rule from sentence pairs; half are clean."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from transformer.quality.failures.flags import Output

Pair = tuple[str, str]
Spoil = Callable[[random.Random, str, str, int], str]
"""From a source, its translation and the number of the sentence to an output that fails."""


@dataclass(frozen=True)
class Labeled:
    """An output, whether it fails, and the right translation."""

    source: str
    output: Output
    fails: bool
    reference: str


def _shortened(rng: random.Random, source: str, target: str, index: int) -> str:
    words = target.split()
    return " ".join(words[: max(1, round(len(words) * 0.4))])


def _repeated(rng: random.Random, source: str, target: str, index: int) -> str:
    """A word, a phrase or the end of the sentence again and again, or one in a word."""
    words = target.split()
    at = rng.randrange(len(words))
    length = rng.randint(1, 4)
    times = rng.randint(3, 8)
    if index % 4 == 3:
        return f"{target} {words[at] * times}"
    return " ".join(words[:at] + words[at : at + length] * times)


def _copied(rng: random.Random, source: str, target: str, index: int) -> str:
    """As it is; in lower case; without its last sign."""
    return (source, source.lower(), source.rstrip(".?!"))[index % 3]


def _unknown(rng: random.Random, source: str, target: str, index: int) -> str:
    words = target.split()
    words[rng.randrange(len(words))] = ("\u2047", "<unk>", "\ufffd")[index % 3]
    return " ".join(words)


def _changed_number(rng: random.Random, source: str, target: str, index: int) -> str:
    """Another number of as many digits, or none."""
    number = target.partition(":")[0].split()[1]
    return target.replace(number, ("", str(int(number) % 900 + 100))[index % 2])


def _lost_name(rng: random.Random, source: str, target: str, index: int) -> str:
    return target.replace(_NAMES[index % len(_NAMES)], ("sie", "Xaver")[index % 2])


def _lost_placeholder(rng: random.Random, source: str, target: str, index: int) -> str:
    """Without it, with another one, or with a blank inside."""
    mark = _MARKS[index % len(_MARKS)]
    return target.replace(mark, ("", "{name}", f"{mark[:1]} {mark[1:]}")[index % 3])


_NAMES = ("Oslo", "Kowalski", "Lisboa", "Nakamura", "Quito")
_MARKS = ("{0}", "https://example.org/a?b=1", "%s", "<x>", "mail@example.org", "${count}", "%(n)d")
_OTHER_LANGUAGES = (
    "le chien de mon frère dort dans la maison avec un petit chat",
    "la profesora de mis hijos trabaja todos los días en la escuela",
    "il medico della città parla spesso con la madre di un bambino",
    "de vader van mijn vriend leest elke avond een boek in de tuin",
    "the brother of my friend has a new house and a very old car",
    "мой брат работает в большом городе и редко видит наших друзей",
)


def _foreign(rng: random.Random, source: str, target: str, index: int) -> str:
    """Words of a sentence in another language, in another order."""
    words = _OTHER_LANGUAGES[index % len(_OTHER_LANGUAGES)].split()
    middle = rng.randrange(2, len(words) - 2)
    return " ".join([*words[middle:], *words[:middle]]).capitalize() + "."


def labeled(pairs: Sequence[Pair], count: int = 200, seed: int = 1) -> dict[str, list[Labeled]]:
    """For each flag of a text ``count`` outputs; every second one is the translation itself."""
    rng = random.Random(seed)
    taken = cycle(pairs)
    numbered = [(f"Room {n}: {s}", f"Zimmer {n}: {t}") for n, (s, t) in enumerate(pairs, 100)]
    named = [
        (f"{s} {name} says so, and {name} knows.", f"{t} Das sagt {name}, und {name} weiß es.")
        for (s, t), name in zip(pairs, cycle(_NAMES), strict=False)
    ]
    marked = [
        (f"See {mark}: {s}", f"Siehe {mark}: {t}")
        for (s, t), mark in zip(pairs, cycle(_MARKS), strict=False)
    ]
    long = [pair for pair in pairs if len(pair[1].split()) > 5]
    kinds: dict[str, tuple[Sequence[Pair], Spoil]] = {
        "empty": (pairs, lambda r, s, t, index: ("", " ", "...", "\u200a")[index % 4]),
        "repetition": (pairs, _repeated),
        "copy": (pairs, _copied),
        "wrong_language": (pairs, _foreign),
        "under_translation": (long, _shortened),
        "over_translation": (long, lambda r, s, t, index: f"{t} {next(taken)[1]} {next(taken)[1]}"),
        "numbers": (numbered, _changed_number),
        "names": (named, _lost_name),
        "placeholders": (marked, _lost_placeholder),
        "unknown": (pairs, _unknown),
    }
    made = {name: _made(rng, *kind, count) for name, kind in kinds.items()}
    # Three of six sources have the output of the first.
    sixes = [long[start : start + 6] for start in range(0, count, 6)]
    made["detached"] = [
        Labeled(source, Output(six[0][1] if index < 3 else target), index < 3, target)
        for six in sixes
        for index, (source, target) in enumerate(six)
    ]
    return made


def _made(rng: random.Random, pairs: Sequence[Pair], spoil: Spoil, count: int) -> list[Labeled]:
    found = []
    for index, (source, target) in zip(range(count), pairs, strict=False):
        fails = index % 2 == 0
        text = spoil(rng, source, target, index) if fails else target
        found.append(Labeled(source, Output(text), fails, target))
    return found
