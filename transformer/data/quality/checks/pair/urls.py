"""Addresses that both sides have, and that differ: of web pages and of mail.

An address of one side alone is no fault, nor is a localised one: /en/ against /de/, .com against
.de. Does not look at what an address leads to.
"""

import re

from transformer.data.quality.base import Fault, PairCheck
from transformer.data.quality.pair import NumberedPair, quoted

_ADDRESS = re.compile(
    r"(?:(?:https?|ftps?|sftp|git|svn|irc)://|\bwww\.|\bmailto:)[^\s<>\"“”„«»‘’'`|{}\\^]+"
    # Mail; it begins where a word does, so that no word is read again from each of its letters.
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    re.IGNORECASE,
)
# What does not tell addresses apart: schemes, domains and suffixes, languages and countries.
_SAME_EVERYWHERE = re.compile(
    r"https?|ftps?|mailto|www\d?|index|com|org|net|info|html?|php|[a-z]{2}"
)
# Each language has its own titles.
_OWN_TITLES = re.compile(r"\bwiki(?:pedia|books|source|voyage|news)\.org\b")
# A text with more of them is a list: nothing is compared.
_MOST = 50
_END = ".,;:!?)]}»("


class Addresses(PairCheck):
    """Pairs in which each side has an address that the other lacks."""

    name = "urls"

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Name the first such addresses."""
        source = _addresses(pair.source)
        if not source:
            return None
        target = _addresses(pair.target)
        for parts, address in source.items():
            for others, other in target.items():
                if parts not in target and others not in source and _differ(parts, others):
                    return Fault(None, f"{quoted(address)} against {quoted(other)}")
        return None


def _addresses(text: str) -> dict[tuple[str, ...], str]:
    """Return the addresses of a text by what tells them apart."""
    if "." not in text:
        return {}
    found = _ADDRESS.findall(text)
    stripped = (address.rstrip(_END) for address in found if len(found) <= _MOST)
    return {_parts(address): address for address in stripped}


def _parts(address: str) -> tuple[str, ...]:
    address = address.lower()
    kind = "mail" if "@" in address else "page"
    if _OWN_TITLES.search(address):
        return kind, "wiki"
    parts = re.findall(r"[^\W_]+", address)
    return kind, *(part for part in parts if not _SAME_EVERYWHERE.fullmatch(part))


def _differ(parts: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether both are of one kind, and each has a part that the other lacks."""
    return parts[0] == others[0] and not (set(parts) <= set(others) or set(others) <= set(parts))
