"""Pairs that are not translated: the target is the source, in words that the corpus translates.

Names, terms, titles and code, which good translations keep, are no evidence.
"""

import re
from dataclasses import dataclass

from transformer.data.quality.base import Fault, PairCheck
from transformer.data.quality.checks.lexicon import Lexicon
from transformer.data.quality.pair import SIDES, NumberedPair, quoted

# Fraction of the tokens of the longer side that are on both sides.
_SAME = 0.9
_NO_WORD = re.compile(r"^[\W_]+|(?<![\W_])[\W_]+$")
_CODE = re.compile(r"[{}$;=|\\<>]|::|->|\(\)|\w_\w")
_MIN_CODE_SIGNS = 2
# The authors of a cited work.
_CITED = re.compile(r"\b[A-Z]\.\s?[A-Z]\w+, (?:[A-Z]\.\s?)+[A-Z]\w+")


@dataclass
class Copies(PairCheck):
    """Pairs whose sides are equal, except for case, punctuation and one word in ten."""

    name = "copy"
    lexicon: Lexicon

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Show the text."""
        if pair.source != pair.target and not _same(pair.source, pair.target):
            return None
        if len(_CODE.findall(pair.target)) >= _MIN_CODE_SIGNS or _CITED.search(pair.target):
            return None
        if any(self.lexicon.is_in(language, pair.target) for language in SIDES):
            return Fault(None, f"untranslated: {quoted(pair.target)}")
        return None


def _same(source: str, target: str) -> bool:
    rough = set(source.lower().split()), set(target.lower().split())
    # Most pairs differ so much that the exact comparison can be skipped.
    if 2 * len(rough[0] & rough[1]) < _SAME * max(map(len, rough)):
        return False
    tokens = [{_NO_WORD.sub("", token) for token in tokens} - {""} for tokens in rough]
    shared = len(tokens[0] & tokens[1])
    return shared > 0 and shared >= _SAME * max(map(len, tokens))
