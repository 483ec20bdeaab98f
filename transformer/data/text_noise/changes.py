"""Changes of one text: each is a pure function of the text and a random generator (catalog.py)."""

import html
import re
import string
from collections.abc import Callable
from random import Random

Change = Callable[[str, Random], str]

_WORD = re.compile(r"\w+(?:['’]\w+)*")
# The letters of a word that may have a typo: shorter words often become another word.
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_FINAL = re.compile(r"\s*[.!?…。！？]+\s*\Z")
_NUMBER = re.compile(r"\d+")

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
# Neighbors in a row of a QWERTY keyboard.
_NEIGHBORS = {
    letter: row[max(index - 1, 0) : index] + row[index + 1 : index + 2]
    for row in _ROWS
    for index, letter in enumerate(row)
}
_EMOJI = ("😀", "😂", "👍", "🎉", "❤️", "🐶", "★", "✓", "→", "©", "#", "~")
_QUOTES = (("“", "”"), ("„", "“"), ("«", "»"), ("「", "」"))
_FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_NOISE = string.ascii_letters + string.digits + "#&*+-/:=@_"


def upper(text: str, random: Random) -> str:
    """Write all in capitals."""
    return text.upper()


def title(text: str, random: Random) -> str:
    """Begin each word with a capital."""
    return _WORD.sub(lambda word: word[0][0].title() + word[0][1:], text)


def lower(text: str, random: Random) -> str:
    """Write nothing in capitals."""
    return text.lower()


def without_final_punctuation(text: str, random: Random) -> str:
    """Remove the final punctuation; a text of nothing else stays."""
    return _FINAL.sub("", text) or text


def doubled_final_punctuation(text: str, random: Random) -> str:
    """Write the last of the final punctuation twice."""
    found = _FINAL.search(text)
    return text.rstrip() + found[0].strip()[-1] if found else text


def typo(text: str, random: Random) -> str:
    """Swap, drop or double a letter, or hit a key beside it, in a word of four letters or more."""
    words = list(_LONG_WORD.finditer(text))
    if not words:
        return text
    word = random.choice(words)
    at = random.randrange(word.start() + 1, word.end() - 1)
    letter, following = text[at], text[at + 1]
    near = _NEIGHBORS.get(letter.lower(), letter)
    key = random.choice(near)
    kinds = (
        following + letter,
        following,
        letter * 2 + following,
        (key.upper() if letter.isupper() else key) + following,
    )
    # Not the letters themselves: two equal ones swapped, or no neighboring key known.
    typos = [kind for kind in kinds if kind != letter + following]
    return text[:at] + random.choice(typos) + text[at + 2 :]


def three_typos(text: str, random: Random) -> str:
    """Make three typos, perhaps in one word."""
    return typo(typo(typo(text, random), random), random)


def missing_blank(text: str, random: Random) -> str:
    """Remove one blank between two words."""
    blanks = [match.start() for match in re.finditer(r"(?<=\w) (?=\w)", text)]
    if not blanks:
        return text
    at = random.choice(blanks)
    return text[:at] + text[at + 1 :]


def emoji(text: str, random: Random) -> str:
    """Add an emoji or symbol as a word at the end."""
    return f"{text.rstrip()} {random.choice(_EMOJI)}"


def other_numbers(text: str, random: Random) -> str:
    """Replace each digit but 0 by another, drawn once for all equal digits."""
    digits = random.sample("123456789", 9)
    return text.translate(str.maketrans("".join(digits), "".join(digits[1:] + digits[:1])))


def numbers(text: str) -> list[str]:
    """Return the numbers of a text, sorted."""
    return sorted(_NUMBER.findall(text))


def html_entities(text: str, random: Random) -> str:
    """Escape markup, quotes and characters beyond ASCII, and write one blank as ``&nbsp;``."""
    escaped = html.escape(text).encode("ascii", "xmlcharrefreplace").decode()
    blanks = [index for index, character in enumerate(escaped) if character == " "]
    if not blanks:
        return escaped
    at = random.choice(blanks)
    return f"{escaped[:at]}&nbsp;{escaped[at + 1 :]}"


def other_quotes(text: str, random: Random) -> str:
    """Replace straight quotes by a pair of another kind, and straight apostrophes by U+2019."""
    before, after = random.choice(_QUOTES)
    text = re.sub(r'"([^"]*)"', rf"{before}\1{after}", text)
    return text.replace("'", "’")


def full_width(text: str, random: Random) -> str:
    """Write ASCII characters in their full width forms (Unicode block FF00); blanks stay."""
    return text.translate(_FULL_WIDTH)


def noise(text: str, random: Random) -> str:
    """Replace the text by one to four words of random characters, not more than it has."""
    count = random.randint(1, max(1, min(4, text.count(" ") + 1)))
    return " ".join("".join(random.choices(_NOISE, k=random.randint(2, 5))) for _ in range(count))
