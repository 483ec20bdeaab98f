"""Pairs that are not translated: the target is the source, in words that the corpus translates.

Names, terms, titles and code, which good translations keep, are no evidence. Does not know
languages.
"""

import re

from transformer.data.quality.base import Fault, PairCheck
from transformer.data.quality.checks.lexicon import Lexicon
from transformer.data.quality.pair import SIDES, NumberedPair, quoted

# Of the tokens of the longer side, that stand on both.
_SAME = 0.9
_NO_WORD = re.compile(r"^[\W_]+|(?<![\W_])[\W_]+$")
_CODE = re.compile(r"[{}$;=|\\<>]|::|->|\(\)|\w_\w")
_CODE_SIGNS = 2
# The authors of a work that is cited.
_CITED = re.compile(r"\b[A-Z]\.\s?[A-Z]\w+, (?:[A-Z]\.\s?)+[A-Z]\w+")


class Copies(PairCheck):
    """Pairs whose sides are the same text, but for case, punctuation and a word in ten."""

    name = "copy"

    def __init__(self, split: str, most: int, lexicon: Lexicon) -> None:
        """Begin to count; see `PairCheck`.

        Args:
            split: as there.
            most: as there.
            lexicon: of the corpus.
        """
        super().__init__(split, most)
        self._lexicon = lexicon

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Show the text."""
        if pair.source != pair.target and not _same(pair.source, pair.target):
            return None
        if len(_CODE.findall(pair.target)) >= _CODE_SIGNS or _CITED.search(pair.target):
            return None
        if any(self._lexicon.is_in(language, pair.target) for language in SIDES):
            return Fault(None, f"untranslated: {quoted(pair.target)}")
        return None


def _same(source: str, target: str) -> bool:
    rough = set(source.lower().split()), set(target.lower().split())
    # Most pairs are far from it: spare them the closer look.
    if 2 * len(rough[0] & rough[1]) < _SAME * max(map(len, rough)):
        return False
    tokens = [{_NO_WORD.sub("", token) for token in tokens} - {""} for tokens in rough]
    shared = len(tokens[0] & tokens[1])
    return shared > 0 and shared >= _SAME * max(map(len, tokens))
