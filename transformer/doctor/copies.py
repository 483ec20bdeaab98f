"""Pairs that are not translated: the target is the source, in words that the corpus translates.

Names, terms, titles and code, which good translations keep, are no evidence. Does not know
languages.
"""

import re

from transformer.doctor.check import Fault, PairCheck
from transformer.doctor.lexicon import Lexicon, words_of
from transformer.doctor.pair import NumberedPair, quoted

# Words that the corpus translates and their share of the text; more words may be a smaller share.
_EVIDENCE = ((2, 0.5), (3, 0.25))
# Two words are a name or a term; in a longer one, "of the" may be in lower case.
_LEAST, _SMALL, _LONG = 3, 3, 4
# Of the tokens of the longer side, that stand on both.
_SAME = 0.9
_NO_WORD = re.compile(r"^[\W_]+|[\W_]+$")
_CODE = re.compile(r"[{}$;=|\\<>]|::|->|\(\)|\w_\w")
_CODE_SIGNS = 2


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
        self._translated = lexicon.translated

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Show the text."""
        if pair.source != pair.target and not _same(pair.source, pair.target):
            return None
        target = pair.target.lower() if pair.target.isupper() else pair.target
        words = words_of(target)
        if len(words) < _LEAST or len(_CODE.findall(target)) >= _CODE_SIGNS:
            return None
        # As within a sentence.
        first = {words[0], words[0].lower()}
        for translated in self._translated:
            known = [word for word in words[1:] if word in translated]
            if not _is_prose(known):
                continue
            known += list(first & translated)[:1]
            if any(
                len(set(known)) >= count and len(known) >= share * len(words)
                for count, share in _EVIDENCE
            ):
                return Fault(None, f"untranslated: {quoted(target)}")
        return None


def _is_prose(words: list[str]) -> bool:
    """Whether words are no title, nor a name such as North Western Province."""
    lower = [word for word in words if word.islower()]
    return len(lower) >= _SMALL or any(len(word) >= _LONG for word in lower)


def _same(source: str, target: str) -> bool:
    rough = set(source.lower().split()), set(target.lower().split())
    # Most pairs are far from it: spare them the closer look.
    if 2 * len(rough[0] & rough[1]) < _SAME * max(map(len, rough)):
        return False
    tokens = [{_NO_WORD.sub("", token) for token in tokens} - {""} for tokens in rough]
    shared = len(tokens[0] & tokens[1])
    return shared > 0 and shared >= _SAME * max(map(len, tokens))
