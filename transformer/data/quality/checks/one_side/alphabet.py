"""Characters that the vocabulary lacks, so that a model would have to spell them in bytes.

With a tokenizer: those without a subword. Without one: those of validation and test text that the
training text lacks.
"""

from dataclasses import dataclass, field

from transformer.data.quality.base import SideCheck
from transformer.data.quality.pair import SIDES, Side, quoted
from transformer.data.tokenization.tokenizer import Tokenizer, normalize

_BYTE = "<0x"


@dataclass
class UnknownCharacters(SideCheck):
    """Texts with an unknown character; without a tokenizer, "train" defines what is known."""

    name = "unknown_characters"
    tokenizer: Tokenizer | None
    known: dict[Side, set[str]]
    """Known characters of each side, which the checks of all splits share and extend."""
    _unknown: dict[Side, set[str]] = field(init=False)

    def __post_init__(self) -> None:
        self._unknown = {side: set() for side in SIDES}

    def describe(self, side: Side, text: str) -> str | None:
        """Name the first such characters."""
        known = self.known[side]
        if known.issuperset(text):
            return None
        characters = dict.fromkeys(normalize(text))
        if self.tokenizer is not None:
            new = characters.keys() - known - self._unknown[side]
            known |= {character for character in new if self._has_subword(side, character)}
            self._unknown[side] |= new - known
        elif self.split == "train":
            known.update(text, characters)
        unknown = [character for character in characters if character not in known]
        if not unknown:
            return None
        named = " ".join(f"{quoted(character)} U+{ord(character):04X}" for character in unknown[:3])
        return f"{named} in {quoted(text, max(0, text.find(unknown[0])))}"

    def _has_subword(self, side: Side, character: str) -> bool:
        tokenizer = self.tokenizer
        assert tokenizer is not None
        if side == "source":
            subwords = tokenizer.source_subwords(tokenizer.encode_source([character])[0])
        else:
            subwords = tokenizer.subwords(tokenizer.encode_target([character])[0])
        return not any(subword.startswith(_BYTE) for subword in subwords)
