"""Characters that a side does not use: of another script, or unknown to the vocabulary."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

from transformer.data.quality.base import SIDES, Side, quoted
from transformer.data.tokenization.config import SYMBOLS, UNK
from transformer.data.tokenization.symbol_vocabulary import FEATURES, split_text
from transformer.data.tokenization.tokenizer import Tokenizer, normalize

_BYTE = "<0x"
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
    counts: Counter[str] = Counter()
    for character, count in Counter("".join(texts)).items():
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
    """Name the script of most letters if it is not an own script of the side."""
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


class Alphabet:
    """Characters known on each side, in all splits; words and features, where these are tokens."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._known: dict[Side, set[str]] = {side: {" "} for side in SIDES}

    def describe(self, is_training: bool, side: Side, text: str) -> str | None:
        """Name the first unknown characters; training text has none without a tokenizer."""
        known, tokens = self._known[side], self._tokens(side, text)
        if known.issuperset(text if tokens is None else tokens):
            return None
        characters = dict.fromkeys(normalize(text) if tokens is None else tokens)
        if self._tokenizer is not None:
            new = characters.keys() - known
            known |= {c for c in new if _is_known(self._tokenizer, side, c)}
        elif is_training:
            known.update(text, characters)
        unknown = [character for character in characters if character not in known]
        if not unknown:
            return None
        named = " ".join(map(_name, unknown[:3]))
        return f"{named} in {quoted(text, max(0, text.find(unknown[0])))}"

    def _tokens(self, side: Side, text: str) -> list[str] | None:
        """The given tokens of a text; None if it is cut into subwords."""
        if self._tokenizer is None:
            return None
        config, index = self._tokenizer.config, SIDES.index(side)
        if (algorithm := config.algorithms[index]) not in SYMBOLS:
            return None
        features = None if index else config.features
        return split_text(text, algorithm == "words", features, config.decompose)


@cache
def _is_known(tokenizer: Tokenizer, side: Side, text: str) -> bool:
    encode, spell = tokenizer.encode_target, tokenizer.subwords
    if side == "source":
        encode, spell = tokenizer.encode_source, tokenizer.source_subwords
    [ids] = encode([text])
    return UNK not in ids and not any(subword.startswith(_BYTE) for subword in spell(ids))


def _name(token: str) -> str:
    return quoted(token.strip(FEATURES)) + (f" U+{ord(token):04X}" if len(token) == 1 else "")
