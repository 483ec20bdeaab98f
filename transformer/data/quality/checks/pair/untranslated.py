"""Pairs that are not translated: the target is the source, in words that the corpus translates.

Names, terms, titles and code, which good translations keep, are no evidence.
"""

import re

from transformer.data.quality.base import Fault
from transformer.data.quality.checks.lexicon import Lexicon
from transformer.data.quality.pair import SIDES, NumberedPair, quoted

# Fraction of the tokens of the longer side that are on both sides.
_SAME = 0.9
_NO_WORD = re.compile(r"^[\W_]+|(?<![\W_])[\W_]+$")
_CODE = re.compile(r"[{}$;=|\\<>]|::|->|\(\)|\w_\w")
_MIN_CODE_SIGNS = 2
# The authors of a cited work.
_CITED = re.compile(r"\b[A-Z]\.\s?[A-Z]\w+, (?:[A-Z]\.\s?)+[A-Z]\w+")


def find_copy(lexicon: Lexicon, pair: NumberedPair) -> Fault | None:
    """Show the text if both sides are equal, but for case, punctuation and one word in ten."""
    source, target = pair.texts
    if source != target and not _is_same(source, target):
        return None
    if len(_CODE.findall(target)) >= _MIN_CODE_SIGNS or _CITED.search(target):
        return None
    if any(lexicon.is_in(language, target) for language in SIDES):
        return Fault(None, f"untranslated: {quoted(target)}")
    return None


def _is_same(source: str, target: str) -> bool:
    rough = set(source.lower().split()), set(target.lower().split())
    # Most pairs differ so much that the exact comparison can be skipped.
    if 2 * len(rough[0] & rough[1]) < _SAME * max(map(len, rough)):
        return False
    tokens = [{_NO_WORD.sub("", token) for token in tokens} - {""} for tokens in rough]
    shared = len(tokens[0] & tokens[1])
    return shared > 0 and shared >= _SAME * max(map(len, tokens))
