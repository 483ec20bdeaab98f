"""Wrong characters: control and replacement, wrong encodings, letters of another script."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import zip_longest

from transformer.data.corpora.split import NumberedPair
from transformer.data.tokenization.tokenizer import Tokenizer, normalize
from transformer.data.tokenization.vocabulary import FEATURES, split_text
from transformer.quality.check import SIDES, Fault, Side, either_side, quoted
from transformer.settings.tokenizer import SYMBOLS, UNK

# The last two code points of each plane are no characters.
_LAST_TWO = "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0xF0000, 2**16)
)
# Invisible characters. No-break and ideographic spaces are typography, and not among them.
_NOTHING = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u2060-\u2064\ufeff\ufff9-\ufffb\ufdd0-\ufdef"
    + _LAST_TWO
)
# Joiners and direction marks; and what needs them: scripts from Hebrew to Burmese, Khmer and
# Mongolian, and emoji.
_JOINERS = "\u200c-\u200f\u202a-\u202e\u2066-\u2069"
_JOINED = re.compile(
    "[\u0590-\u109f\u1780-\u18af\ua840-\uabff\ufb1d-\ufdff\ufe0f\ufe70-\ufefc\U00010a00-\U0001ffff]"
)
_INVISIBLE = re.compile(f"[{_NOTHING}]")
_INVISIBLE_OR_JOINER = re.compile(f"[{_NOTHING}{_JOINERS}]")
_BLANKS = "\t-\x0d\x1c-\x1f\x85\u1680\u2000-\u200a\u2028\u2029\u205f"
_ODD_BLANKS = re.compile(f" *[{_BLANKS}][{_BLANKS} ]*|  +|^ | $")
# Faults beside invisible characters: blanks that end a line or a field, and private use.
_OTHER = re.compile("[\t-\x0d\x1c-\x1f\x85\u2028\u2029\ue000-\uf8ff\U000f0000-\U0010ffff]")
# Separates words in scripts that are written without spaces: Thai, Lao, Burmese, Khmer.
_WORD_SEPARATOR = "\u200b"
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f]"
)
_REPLACEMENT = "\ufffd"
# In a wrong encoding, a character becomes several that are not ASCII: only such text is decoded.
_SEVERAL = re.compile(r"[^\x00-\x7f][^\x00-\x7f]|Ã |[\x80-\x9f]")


def remove_invisible(text: str) -> str:
    """Return the text without invisible characters, except those that its script needs."""
    if text.isascii() and text.isprintable():
        return text
    kept = _WORD_SEPARATOR if _WITHOUT_SPACES.search(text) else ""
    return _invisible_in(text).sub(lambda found: found[0] if found[0] == kept else "", text)


def normalize_blanks(text: str) -> str:
    """Return the text with one space for odd blanks and several, and none at its ends."""
    return _ODD_BLANKS.sub(" ", text).strip(" ")


def undo_wrong_encoding(text: str) -> str:
    """Return the text in its right encoding; raises ImportError without ftfy."""
    from ftfy import fix_encoding

    return fix_encoding(text) if _SEVERAL.search(text) else text


def _invisible_in(text: str) -> re.Pattern[str]:
    return _INVISIBLE if _JOINED.search(text) else _INVISIBLE_OR_JOINER


@either_side
def find_control(side: Side, text: str) -> str | None:
    """Name the first control, private, line-separating or invisible character, or tab."""
    if text.isascii() and text.isprintable():
        return None
    kept = _WORD_SEPARATOR if _WITHOUT_SPACES.search(text) else ""
    for match in (*_invisible_in(text).finditer(text), *_OTHER.finditer(text)):
        if match[0] != kept:
            return f"U+{ord(match[0]):04X} in {quoted(text, match.start())}"
    return None


def find_replacement(pair: NumberedPair) -> Fault | None:
    """Show the first U+FFFD of one side: a character was lost. On both sides it is meant."""
    indices = [text.find(_REPLACEMENT) for text in pair.texts]
    for side, text, index, other in zip(SIDES, pair.texts, indices, indices[::-1], strict=True):
        if index >= 0 > other:
            return Fault(side, f"U+FFFD in {quoted(text, index)}")
    return None


@either_side
def find_not_nfc(side: Side, text: str) -> str | None:
    """Show the first character that the normal form NFC spells otherwise."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return None
    return f"not NFC: {_quote_difference(text, unicodedata.normalize('NFC', text))}"


@either_side
def find_mojibake(side: Side, text: str) -> str | None:
    """Show the first character of text that makes sense in another encoding."""
    decoded = undo_wrong_encoding(text)
    return None if decoded == text else _quote_difference(text, decoded)


def _quote_difference(text: str, repaired: str) -> str:
    """Quote a text around the first character that differs from the right text."""
    characters = enumerate(zip_longest(text, repaired))
    return quoted(text, next(index for index, (was, becomes) in characters if was != becomes))


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
        script = char_script(character)
        if script:
            counts[script] += count
    return counts


def frequent_scripts(texts: Iterable[str]) -> frozenset[str]:
    """Return the scripts of at least 2 % of the letters."""
    counts = _count_scripts(texts)
    min_count = _MIN_FRACTION * counts.total()
    return frozenset(script for script, count in counts.items() if count >= min_count)


def describe_foreign_script(
    usual: Mapping[Side, frozenset[str]], side: Side, text: str
) -> str | None:
    """Name the script of most letters if it is not an own script of the side."""
    scripts = usual[side]
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
        known = self._known[side]
        tokens = self._tokens(side, text)
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
        config = self._tokenizer.config
        index = SIDES.index(side)
        algorithm = config.algorithms[index]
        if algorithm not in SYMBOLS:
            return None
        features = None if index else config.features
        return split_text(text, algorithm == "words", features, config.decompose)


@cache
def _is_known(tokenizer: Tokenizer, side: Side, text: str) -> bool:
    encode = tokenizer.encode_target
    spell = tokenizer.subwords
    if side == "source":
        encode = tokenizer.encode_source
        spell = tokenizer.source_subwords
    [ids] = encode([text])
    # Bytes are the alphabet of some vocabularies, and of others the last resort.
    if tokenizer.config.algorithms[SIDES.index(side)] in ("bytes", "huggingface"):
        return UNK not in ids
    return UNK not in ids and not any(subword.startswith(_BYTE) for subword in spell(ids))


def _name(token: str) -> str:
    return quoted(token.strip(FEATURES)) + (f" U+{ord(token):04X}" if len(token) == 1 else "")
