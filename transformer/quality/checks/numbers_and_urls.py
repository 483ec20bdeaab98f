"""Numbers and addresses, of web pages and of mail, that differ between the sides.

Exactly one number differs (1998 against 1989), grouping, signs and order apart. An address on one
side alone is no fault, nor is a localized one: /en/ against /de/, .com against .de.
"""

import re
import unicodedata
from collections.abc import Iterable
from itertools import product

from transformer.data.corpora.split import NumberedPair
from transformer.quality.check import Fault, quoted

# Readings: blanks separate numbers; or group digits, as in 1 000; or all marks are part of one.
_READINGS = (
    *(
        re.compile(rf"(?<!\d)\d{{1,3}}(?:([{marks}])\d{{3}})(?:\1\d{{3}})*(?!\d)|\d+")
        for marks in (".,'’٬", " .,'’٬\u00a0\u2009\u202f\u22c5")
    ),
    re.compile(r"\d+(?:[.,'’٫٬]\d+)*"),
)
# The order or the width of a value in a message: %1$s, %8d.
_DIRECTIVE = re.compile(r"%[-+#0-9.]+")
# Times of day, of 12 or 24 hours.
_HOURS = re.compile(r"\d\s?(?:[ap]\.?\s?m\b|h\b|uhr\b|o.clock)|\d:\d\d", re.IGNORECASE)
# Before a number: the last word; the letters and the sign that it is joined to.
_WORD_BEFORE = re.compile(r"(\w*)\W*$")
_JOINED = re.compile(r"[^\W\d]*[-+]?$")
_DIGITS = re.compile(r"\d+")
# A text with more numbers is a table or a listing, and is not compared.
_MAX_NUMBERS = 50
# Numbers up to this one are often words.
_SPELLED_OUT = "012"
# Larger ones are seldom words on one side alone.
_MAX_SPELLED_OUT = 12
# Characters before a number that are compared.
_CONTEXT = 40
_ADDRESS = re.compile(
    r"(?:(?:https?|ftps?|sftp|git|svn|irc)://|\bwww\.|\bmailto:)[^\s<>\"“”„«»‘’'`|{}\\^]+"
    # A mail address begins where a word does; otherwise each letter of a long word is tried.
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    re.IGNORECASE,
)
# Parts that are not compared: schemes, domains and suffixes, languages and countries.
_SAME_EVERYWHERE = re.compile(
    r"https?|ftps?|mailto|www\d?|index|com|org|net|info|html?|php|[a-z]{2}"
)
# Page titles differ between languages here.
_OWN_TITLES = re.compile(r"\bwiki(?:pedia|books|source|voyage|news)\.org\b")
# A text with more addresses is a list, and is not compared.
_MAX_ADDRESSES = 50
_END = ".,;:!?)]}»("


def find_different_numbers(pair: NumberedPair) -> Fault | None:
    """Name one number of each side that the other side lacks, in the same context."""
    texts = [_normalized(text) for text in pair.texts]
    if not all(texts) or texts[0] == texts[1]:
        return None
    hours = any(map(_HOURS.search, texts))
    sources, targets = ([_numbers(reading, text) for reading in _READINGS] for text in texts)
    unmatched = [
        (_missing(source, target, hours), _missing(target, source, hours))
        for source in sources
        for target in targets
    ]
    # One combination of readings without a difference is enough.
    if [*map(len, unmatched[0])] != [1, 1] or not all(map(all, unmatched)):
        return None
    (source,), (target,) = unmatched[0]
    if not _correspond(source, target, sources[0][source], targets[0][target]):
        return None
    texts_shown = f"{quoted(pair.source)} and {quoted(pair.target)}"
    return Fault(None, f"{source} against {target}: {texts_shown}")


def find_lost_number(pair: NumberedPair) -> Fault | None:
    """Name a number of the source that the target has in no reading, nor may have as a word."""
    source, target = map(_normalized, pair.texts)
    if not source:
        return None
    hours = any(map(_HOURS.search, (source, target)))
    sources, targets = (
        [_numbers(reading, text) for reading in _READINGS] for text in (source, target)
    )
    lost = min((_missing(*pair, hours) for pair in product(sources, targets)), key=len)
    # Numbers have no leading zeros; Python converts none of thousands of digits.
    written = (number for number in lost if len(number) > 2 or int(number) > _MAX_SPELLED_OUT)
    number = next(written, None)
    return None if number is None else Fault("target", f"lacks {number}: {quoted(pair.target)}")


def _normalized(text: str) -> str:
    """Return the text in lower case and NFKC; empty if it is not to be compared."""
    # A single word is a value or a path.
    if not any(map(str.isdigit, text)) or (text.isascii() and len(text.split()) < 2):
        return ""
    if len(_DIGITS.findall(text)) > _MAX_NUMBERS:
        return ""
    return _DIRECTIVE.sub("", unicodedata.normalize("NFKC", text).lower())


def _numbers(reading: re.Pattern[str], text: str) -> dict[str, str]:
    """Return the ASCII digits of each number, with the characters before it."""
    numbers = {}
    for match in reading.finditer(text):
        number = "".join(str(int(digit)) for digit in match[0] if digit.isdecimal())
        # Minutes, decimals and groups of zeros are often left out.
        if number.strip("0") or number == "0":
            before = text[max(0, match.start() - _CONTEXT) : match.start()]
            numbers[number.lstrip("0") or "0"] = before
    return numbers


def _missing(numbers: Iterable[str], rest: Iterable[str], hours: bool) -> list[str]:
    return [
        number
        for number in numbers
        if number not in rest and not any(_alike(number, other, hours) for other in rest)
    ]


def _correspond(first: str, second: str, before_first: str, before_second: str) -> bool:
    """Whether two numbers are large with as many digits, or follow the same word."""
    contexts = before_first, before_second
    if len({_JOINED.findall(context)[0] for context in contexts} - {""}) > 1:
        return False
    same_length = len(first) == len(second)
    if same_length and min(first, second).zfill(len(_SPELLED_OUT)) > _SPELLED_OUT:
        return True
    word, second_word = (_WORD_BEFORE.findall(context)[0] for context in contexts)
    return word == second_word and (word.isalpha() or (word != "" and same_length))


def _alike(number: str, other: str, hours: bool) -> bool:
    """Whether both may mean the same: 5000 and 5 thousand, 1990 and the 90s, 3 pm and 15."""
    short, long = sorted((number, other), key=len)
    zeros = len(long) - len(short)
    if long == short + "0" * zeros and (zeros >= 3 or not zeros):
        return True
    if len(long) == 4 and long[0] in "12" and len(short) <= 2:
        century = long.endswith("00") and int(short) - int(long[:2]) in (0, 1)
        return int(long[2:]) == int(short) or century
    return hours and len(long) <= 2 and abs(int(number) - int(other)) == 12


def find_different_urls(pair: NumberedPair) -> Fault | None:
    """Name the first two addresses that the other side lacks."""
    source = _addresses(pair.source)
    target = _addresses(pair.target) if source else {}
    for parts, address in source.items():
        for target_parts, target_address in target.items():
            common = {*parts} <= {*target_parts} or {*target_parts} <= {*parts}
            unmatched = parts not in target and target_parts not in source
            if unmatched and parts[0] == target_parts[0] and not common:
                return Fault(None, f"{quoted(address)} against {quoted(target_address)}")
    return None


def _addresses(text: str) -> dict[tuple[str, ...], str]:
    addresses = _ADDRESS.findall(text) if "." in text else []
    if len(addresses) > _MAX_ADDRESSES:
        return {}
    stripped = (address.rstrip(_END) for address in addresses)
    return {_parts(address): address for address in stripped}


def _parts(address: str) -> tuple[str, ...]:
    address = address.lower()
    kind = "mail" if "@" in address else "page"
    if _OWN_TITLES.search(address):
        return kind, "wiki"
    parts = re.findall(r"[^\W_]+", address)
    return kind, *(part for part in parts if not _SAME_EVERYWHERE.fullmatch(part))
