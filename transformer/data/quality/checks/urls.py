"""Addresses of web pages and of mail that differ between the sides.

An address on one side alone is no fault, nor is a localised one: /en/ against /de/, .com against
.de.
"""

import re

from transformer.data.quality.base import Fault
from transformer.data.quality.pair import NumberedPair, quoted

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


def find_different_urls(pair: NumberedPair) -> Fault | None:
    """Name the first two addresses that the other side lacks."""
    source = _addresses(pair.source)
    target = _addresses(pair.target) if source else {}
    for parts, address in source.items():
        for target_parts, target_address in target.items():
            unmatched = parts not in target and target_parts not in source
            if unmatched and _differ(parts, target_parts):
                return Fault(None, f"{quoted(address)} against {quoted(target_address)}")
    return None


def _addresses(text: str) -> dict[tuple[str, ...], str]:
    """Return the addresses of a text by the parts that are compared."""
    found = _ADDRESS.findall(text) if "." in text else []
    if len(found) > _MAX_ADDRESSES:
        return {}
    stripped = (address.rstrip(_END) for address in found)
    return {_parts(address): address for address in stripped}


def _parts(address: str) -> tuple[str, ...]:
    address = address.lower()
    kind = "mail" if "@" in address else "page"
    if _OWN_TITLES.search(address):
        return kind, "wiki"
    parts = re.findall(r"[^\W_]+", address)
    return kind, *(part for part in parts if not _SAME_EVERYWHERE.fullmatch(part))


def _differ(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Whether both are of one kind, and each has a part that the other lacks."""
    return first[0] == second[0] and not (set(first) <= set(second) or set(second) <= set(first))
