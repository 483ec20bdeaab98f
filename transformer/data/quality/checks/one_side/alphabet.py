"""Characters that the vocabulary lacks, so that a model would have to spell them in bytes.

With a tokenizer: those without a subword. Without one: those of validation and test text that the
training text lacks.
"""

from transformer.data.quality.pair import SIDES, Side, quoted
from transformer.data.tokenization.tokenizer import Tokenizer, normalize

_BYTE = "<0x"


class Alphabet:
    """The known characters of each side, for the checks of all splits."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._known: dict[Side, set[str]] = {side: {" "} for side in SIDES}
        self._unknown: dict[Side, set[str]] = {side: set() for side in SIDES}

    def describe(self, is_training: bool, side: Side, text: str) -> str | None:
        """Name the first unknown characters; training text has none without a tokenizer."""
        known = self._known[side]
        if known.issuperset(text):
            return None
        characters = dict.fromkeys(normalize(text))
        if self._tokenizer is not None:
            new = characters.keys() - known - self._unknown[side]
            known |= {character for character in new if self._has_subword(side, character)}
            self._unknown[side] |= new - known
        elif is_training:
            known.update(text, characters)
        unknown = [character for character in characters if character not in known]
        if not unknown:
            return None
        named = " ".join(f"{quoted(character)} U+{ord(character):04X}" for character in unknown[:3])
        return f"{named} in {quoted(text, max(0, text.find(unknown[0])))}"

    def _has_subword(self, side: Side, character: str) -> bool:
        tokenizer = self._tokenizer
        assert tokenizer is not None
        if side == "source":
            subwords = tokenizer.source_subwords(tokenizer.encode_source([character])[0])
        else:
            subwords = tokenizer.subwords(tokenizer.encode_target([character])[0])
        return not any(subword.startswith(_BYTE) for subword in subwords)
