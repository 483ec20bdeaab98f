"""Characters that the vocabulary lacks, so that a model would have to spell them in bytes.

With a tokenizer: those without a subword. Without one: those of validation and test text that the
training text lacks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from transformer.data.quality.base import Check, Finding, SideCheck
from transformer.data.quality.pair import SIDES, NumberedPair, Side, quoted
from transformer.data.tokenization.tokenizer import Tokenizer, normalize

_BYTE = "<0x"


class TokenizerAlphabet:
    """The characters that a tokenizer knows."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.knows = cache(self._knows)
        """Whether a side has a subword for a character."""

    def _knows(self, side: Side, character: str) -> bool:
        tokenizer = self._tokenizer
        if side == "source":
            subwords = tokenizer.source_subwords(tokenizer.encode_source([character])[0])
        else:
            subwords = tokenizer.subwords(tokenizer.encode_target([character])[0])
        return not any(subword.startswith(_BYTE) for subword in subwords)


class TrainingAlphabet(Check):
    """Collects the characters of the training text; finds no fault itself."""

    names = ()
    needs_all_pairs = True

    def __init__(self, split: str, max_examples: int) -> None:
        super().__init__(split, max_examples)
        self._characters: dict[Side, set[str]] = {side: set() for side in SIDES}

    def see(self, pair: NumberedPair) -> None:
        """Add the characters of a pair."""
        for side, text in zip(SIDES, pair.texts, strict=True):
            if not self._characters[side].issuperset(text):
                self._characters[side].update(text, normalize(text))

    def knows(self, side: Side, character: str) -> bool:
        """Whether the training text has a character on a side."""
        return character in self._characters[side]

    def findings(self) -> Iterable[Finding]:
        """Return nothing."""
        return ()

    def faults(self, pair: NumberedPair) -> Iterable[str]:
        """Return nothing."""
        return ()


@dataclass
class UnknownCharacters(SideCheck):
    """Texts with a character that the alphabet lacks."""

    name = "unknown_characters"
    alphabet: TokenizerAlphabet | TrainingAlphabet

    def __post_init__(self) -> None:
        self._known: dict[Side, set[str]] = {side: {" "} for side in SIDES}

    def describe(self, side: Side, text: str) -> str | None:
        """Name the first such characters."""
        known = self._known[side]
        if known.issuperset(text):
            return None
        unknown = []
        for character in dict.fromkeys(normalize(text)):
            if character in known or self.alphabet.knows(side, character):
                known.add(character)
            else:
                unknown.append(character)
        if not unknown:
            return None
        named = " ".join(f"{quoted(character)} U+{ord(character):04X}" for character in unknown[:3])
        return f"{named} in {quoted(text, max(0, text.find(unknown[0])))}"
