"""Characters that the vocabulary cannot know, and that a model would have to spell in bytes.

With a tokenizer those that it has no piece for; without one, those of validation and test text that
the training text never has. Does not know what is wrong with a character.
"""

from collections.abc import Callable

from transformer.data.quality.base import SideCheck
from transformer.data.quality.pair import SIDES, NumberedPair, Side, quoted
from transformer.data.tokenization.tokenizer import Tokenizer, normalize

Knows = Callable[[str], bool]
"""Of one character."""

_BYTE = "<0x"


def known_to(tokenizer: Tokenizer) -> tuple[Knows, Knows]:
    """Return what a tokenizer knows on the source side and on the target side."""

    def source(character: str) -> bool:
        (ids,) = tokenizer.encode_source([character])
        return not any(subword.startswith(_BYTE) for subword in tokenizer.source_subwords(ids))

    def target(character: str) -> bool:
        (ids,) = tokenizer.encode_target([character])
        return not any(subword.startswith(_BYTE) for subword in tokenizer.subwords(ids))

    return source, target


class Alphabet:
    """The characters of both sides of a text, as the tokenizer would see them."""

    def __init__(self) -> None:
        self._seen: tuple[set[str], set[str]] = (set(), set())

    def add(self, pair: NumberedPair) -> None:
        """Take in the characters of a pair."""
        for seen, text in zip(self._seen, (pair.source, pair.target), strict=True):
            if not seen.issuperset(text):
                seen.update(text, normalize(text))

    def known(self) -> tuple[Knows, Knows]:
        """Return what is known of it on either side."""
        source, target = self._seen
        return source.__contains__, target.__contains__


class UnknownCharacters(SideCheck):
    """Texts with a character that is not known."""

    name = "unknown_characters"

    def __init__(self, split: str, most: int, known: tuple[Knows, Knows]) -> None:
        """Begin to count; see `PairCheck`.

        Args:
            split: as there.
            most: as there.
            known: on the source side and on the target side.
        """
        super().__init__(split, most)
        self._knows = dict(zip(SIDES, known, strict=True))
        self._known: dict[Side, set[str]] = {side: {" "} for side in SIDES}
        self._unknown: dict[Side, set[str]] = {side: set() for side in SIDES}

    def said(self, side: Side, text: str) -> str | None:
        """Name the first such characters."""
        known = self._known[side]
        if known.issuperset(text):
            return None
        found = [one for one in dict.fromkeys(normalize(text)) if not self._is_known(side, one)]
        if not found:
            return None
        named = " ".join(f"{quoted(one)} U+{ord(one):04X}" for one in found[:3])
        return f"{named} in {quoted(text, max(0, text.find(found[0])))}"

    def _is_known(self, side: Side, character: str) -> bool:
        if character not in self._known[side] and character not in self._unknown[side]:
            known = self._knows[side](character)
            (self._known if known else self._unknown)[side].add(character)
        return character in self._known[side]
