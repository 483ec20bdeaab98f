"""Scripts: Latin, Cyrillic, Hiragana and so on, by the Unicode names of letters.

Does not know languages. Which scripts belong to a side, `profile.py` finds out.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

from transformer.data.quality.base import SideCheck
from transformer.data.quality.pair import SIDES, Side, quoted

LATIN = "LATIN"
# Fewer letters are a name, a unit or a formula.
_LETTERS = 5
# Of the letters of a text, that its own scripts write at least.
_OWN_SHARE = 0.5
# Of the letters of a side, that a script needs to belong to it.
_BELONGS = 0.02


@cache
def char_script(character: str) -> str | None:
    """Return the script of a letter, or None for anything else."""
    if not character.isalpha():
        return None
    # A full-width letter is the letter.
    plain = unicodedata.normalize("NFKC", character)[0]
    return unicodedata.name(plain, "UNNAMED").split()[0].split("-")[0]


def scripts_among(texts: Iterable[str]) -> frozenset[str]:
    """Return the scripts that a good part of the letters of some texts are of."""
    letters = Counter(map(char_script, "".join(texts)))
    del letters[None]
    bound = _BELONGS * letters.total()
    return frozenset(str(script) for script, count in letters.items() if count >= bound)


class ForeignScript(SideCheck):
    """Texts that are written, for the most part, in a script which their side does not use."""

    name = "script"

    def __init__(self, split: str, most: int, own: tuple[frozenset[str], frozenset[str]]) -> None:
        """Begin to count; see `PairCheck`.

        Args:
            split: as there.
            most: as there.
            own: the scripts of the source side and of the target side.
        """
        super().__init__(split, most)
        self._own = dict(zip(SIDES, own, strict=True))

    def said(self, side: Side, text: str) -> str | None:
        """Name the script that most letters are of."""
        own = self._own[side]
        if not own or (text.isascii() and LATIN in own):
            return None
        used = {char_script(character) for character in set(text)} - {None}
        if used <= own:
            return None
        letters = Counter(map(char_script, text))
        del letters[None]
        if letters.total() < _LETTERS:
            return None
        if sum(letters[script] for script in own) >= _OWN_SHARE * letters.total():
            return None
        (script, _), *_ = letters.most_common(1)
        return f"{str(script).capitalize()} script: {quoted(text)}"
