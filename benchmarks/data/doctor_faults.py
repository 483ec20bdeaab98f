"""Faults, and good pairs that look like faults, planted in a parallel text by rule.

Does not know how a fault is found, only which checks are there for it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

OF_A_KIND = 150
"""Pairs of the corpus that are replaced for each kind."""
SHIFTED = 200
"""Lines of the stretch that is shifted."""

_NOT_TRANSLATED = ("copy", "language", "script")

Pair = tuple[str, str]
Maker = Callable[[random.Random, str, str], Pair | None]
"""From a good pair to one with a fault, or None where that pair cannot have it."""


@dataclass(frozen=True)
class Kind:
    """What is planted."""

    checks: tuple[str, ...]
    """Any of them may find it; none: the pair is good. "repair": it is made as it was."""
    make: Maker


def _inserted(rng: random.Random, text: str, what: str) -> str:
    index = rng.randrange(len(text) + 1)
    return text[:index] + what + text[index:]


def _digit(rng: random.Random, source: str, target: str) -> Pair | None:
    """Change a digit of the target; where there is none, one of a number that is added."""
    indices = [index for index, character in enumerate(target) if character in "123456789"]
    if not indices or not any(map(str.isdigit, source)):
        number = str(rng.randint(13, 2100))
        source = f"{source} ({number})"
        target = f"{target} ({number})"
        indices = [len(target) - 2]
    index = rng.choice(indices)
    other = rng.choice([digit for digit in "123456789" if digit != target[index]])
    return source, target[:index] + other + target[index + 1 :]


def _address(rng: random.Random, source: str, target: str) -> Pair:
    names = rng.sample(("alpha", "beta", "gamma", "delta", "omega"), 3)
    url = "{} (see http://www.{}.org/{})", "{} ({}@{}.org)"
    shape = rng.choice(url)
    return shape.format(source, names[0], names[1]), shape.format(target, names[0], names[2])


_MARKED = "<p>{} {}</p>", "<b>{}</b> {}", "{} {}<br>", '<span class="x">{}</span> {}'


def _marked(*sides: int) -> Maker:
    def make(rng: random.Random, *pair: str) -> Pair:
        shape = rng.choice(_MARKED)
        texts = [*pair]
        for side in sides:
            texts[side] = shape.format(*f"{texts[side]} ".split(" ", 1))
        return texts[0], texts[1]

    return make


def _encoding(times: int, encoding: str) -> Maker:
    def make(rng: random.Random, source: str, target: str) -> Pair | None:
        text = target
        for _ in range(times):
            try:
                text = text.encode().decode(encoding)
            except UnicodeDecodeError:
                return None
        return (source, text) if text != target else None

    return make


def _cut(rng: random.Random, source: str, target: str) -> Pair | None:
    words = target.split()
    return (source, " ".join(words[: len(words) // 2])) if len(words) > 9 else None


def _compound(rng: random.Random, source: str, target: str) -> Pair | None:
    words = [word for word in source.lower().split() if len(word) > 3 and word.isalpha()]
    if len(words) < 2:
        return None
    one, other = rng.sample(words, 2)
    return f"{one} {other}", rng.choice((f"{one}{other}", f"{one}-{other}")).capitalize()


def _both(*shapes: str) -> Maker:
    """Put a text of one of the shapes behind both sides; where it has a bar, its halves."""

    def make(rng: random.Random, source: str, target: str) -> Pair:
        first, _, other = rng.choice(shapes).partition("|")
        return f"{source} {first}", f"{target} {other or first}"

    return make


def _one_of(*texts: str) -> Maker:
    """Put a text, or both its halves, in place of both sides."""

    def make(rng: random.Random, source: str, target: str) -> Pair:
        first, _, other = rng.choice(texts).partition("|")
        return first, other or first

    return make


_INVISIBLE = "\u200b\u00ad\ufeff\u200d\u2060\u0008\u001b"


def kinds(corpus: Sequence[Pair], foreign: Sequence[str]) -> dict[str, Kind]:
    """Return faults, and good pairs that look like faults.

    Args:
        corpus: gives further sentences.
        foreign: sentences in a third language.
    """
    return _wrong_texts(foreign) | _wrong_content(corpus) | _repairable() | _good()


def _wrong_texts(foreign: Sequence[str]) -> dict[str, Kind]:
    """Return faults of the language."""
    swapped = ("language", "script")
    return {
        "source in place of the target": Kind(_NOT_TRANSLATED, lambda r, s, t: (s, s)),
        "the same in lower case": Kind(
            _NOT_TRANSLATED, lambda r, s, t: (s, s.lower().rstrip(" ."))
        ),
        "target in place of the source": Kind(_NOT_TRANSLATED, lambda r, s, t: (t, t)),
        "sides swapped": Kind(swapped, lambda r, s, t: (t, s)),
        "target in a third language": Kind(swapped, lambda r, s, t: (s, r.choice(foreign))),
    }


def _wrong_content(corpus: Sequence[Pair]) -> dict[str, Kind]:
    """Return faults of the content."""
    return {
        "a digit changed": Kind(("numbers",), _digit),
        "an address changed": Kind(("urls",), _address),
        "tags on one side": Kind(("markup",), _marked(1)),
        "a side twice": Kind(("ratio",), lambda r, s, t: (s, f"{t} {t}")),
        "the last word over and over": Kind(
            ("ratio",), lambda r, s, t: (s, t + f" {t.rstrip(' .。').split()[-1]}" * 5)
        ),
        "another sentence added": Kind(
            ("ratio",), lambda r, s, t: (s, f"{t} {r.choice(corpus)[1]}")
        ),
        "half of the words cut off": Kind(("ratio",), _cut),
        "a side empty": Kind(("empty",), lambda r, s, t: (s, " ")),
        "a character lost (U+FFFD)": Kind(
            ("replacement",), lambda r, s, t: (s, _inserted(r, t, "\ufffd"))
        ),
    }


def _repairable() -> dict[str, Kind]:
    """Return faults that clean repairs."""
    makers: dict[str, Maker] = {
        "UTF-8 read as Latin-1": _encoding(1, "latin-1"),
        "UTF-8 read as Windows-1252": _encoding(1, "cp1252"),
        "the same twice over": _encoding(2, "cp1252"),
        "an invisible character": lambda r, s, t: (s, _inserted(r, t, r.choice(_INVISIBLE))),
        "odd blanks": lambda r, s, t: (
            s,
            t.replace(" ", r.choice(("\u2003", "  ", " \u2009")), 1) + " ",
        ),
        "the same tags on both sides": _marked(0, 1),
        "an entity on one side": lambda r, s, t: (f"{s} (A & B)", f"{t} (A &amp; B)"),
    }
    return {name: Kind(("repair",), make) for name, make in makers.items()}


def _good() -> dict[str, Kind]:
    """Return good pairs that look like faults."""
    makers: dict[str, Maker] = {
        "a compound": _compound,
        "a name or a term": _one_of(
            "Format",
            "Simple Mail Transfer Protocol",
            "Black Forest",
            "GNU Emacs",
            "UTF-8 codec",
        ),
        "code, options, paths": _one_of(
            "for (i = 0; i < n; i++) { sum += the[i]; }", "--with-all --no-name", "/a/of/the"
        ),
        "the same address": _both(
            "http://a.org/b.html",
            "<URL:https://a.org>",
            "<a@b.org>",
            "http://a.com/en/b|https://a.de/de/b",
            "https://en.wikipedia.org/wiki/A|https://de.wikipedia.org/wiki/B",
        ),
        "angle brackets": _both(
            "#include <stdio.h>", "<file>|<name>", "List<String>", "<i>x</i>", "3 < 4 & 5"
        ),
        "quotes": _both('"A"|»Ü«', '"x"|»ß«…', "(“oh”)|(„Öl“)", "'a'|« é »"),
        "numbers written otherwise": _both(
            "1,234.5|1.234,5",
            "12,000|12\u202f000",
            "5 thousand|5000",
            "4:30 pm|16:30",
            "3|III",
            "the 1990s|90",
            "2001-02-03|3.2.2001",
            "%s %d|%2$d %1$s",
        ),
    }
    return {f"good: {name}": Kind((), make) for name, make in makers.items()}


@dataclass
class Planted:
    """A corpus with faults."""

    pairs: list[Pair]
    names: dict[int, str] = field(default_factory=dict)
    """Names of kinds by index of the pair."""
    good: dict[int, Pair] = field(default_factory=dict)
    """What was there before."""


def plant(corpus: Sequence[Pair], made: Mapping[str, Kind], seed: int) -> Planted:
    """Put faults of each kind in random places, and shift a stretch."""
    rng = random.Random(seed)
    planted = Planted(list(corpus))
    start = len(corpus) // 2
    stretch = range(start, start + SHIFTED)
    for index in stretch:
        planted.pairs[index] = corpus[index][0], corpus[index - 1][1]
        planted.names[index] = "a stretch shifted by a line"
    indices = [index for index in range(len(corpus)) if index not in stretch]
    rng.shuffle(indices)
    for name, kind in made.items():
        done = 0
        for index in indices:
            if done == OF_A_KIND:
                break
            if index in planted.good or (pair := kind.make(rng, *corpus[index])) is None:
                continue
            planted.pairs[index], planted.names[index] = pair, name
            planted.good[index] = corpus[index]
            done += 1
    return planted
