"""Scripts such as Latin, Cyrillic or Hiragana, by the Unicode names of letters."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from transformer.data.quality.pair import Side, quoted

# Fewer letters are a name, a unit or a formula.
_MIN_LETTERS = 5
# Fraction of the letters of a text that its side's scripts must write.
_OWN_FRACTION = 0.5
# Fraction of the letters of a side that a script of that side writes.
_MIN_FRACTION = 0.02


@cache
def char_script(character: str) -> str | None:
    """Return the script of a letter, or None for anything else."""
    if not character.isalpha():
        return None
    # A full-width letter is the letter.
    plain = unicodedata.normalize("NFKC", character)[0]
    return unicodedata.name(plain, "UNNAMED").split()[0].split("-")[0]


def _count_scripts(texts: Iterable[str]) -> Counter[str]:
    letters = Counter("".join(texts))
    counts: Counter[str] = Counter()
    for character, count in letters.items():
        if script := char_script(character):
            counts[script] += count
    return counts


def frequent_scripts(texts: Iterable[str]) -> frozenset[str]:
    """Return the scripts of at least 2 % of the letters."""
    counts = _count_scripts(texts)
    min_count = _MIN_FRACTION * counts.total()
    return frozenset(script for script, count in counts.items() if count >= min_count)


def describe_foreign_script(
    own: Mapping[Side, frozenset[str]], side: Side, text: str
) -> str | None:
    """Name the script of most letters if the side does not use it.

    Args:
        own: scripts of each side.
        side: of the text.
        text: to examine.
    """
    scripts = own[side]
    if not scripts or (text.isascii() and "LATIN" in scripts):
        return None
    if {char_script(character) for character in set(text)} - {None} <= scripts:
        return None
    counts = _count_scripts([text])
    if counts.total() < _MIN_LETTERS:
        return None
    if sum(counts[script] for script in scripts) >= _OWN_FRACTION * counts.total():
        return None
    (script, _), *_ = counts.most_common(1)
    return f"{script.capitalize()} script: {quoted(text)}"
