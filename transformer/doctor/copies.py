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
# Two words are a name or a term; and evidence is more than "de la".
_LEAST, _LONG = 3, 4
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
        if pair.source != pair.target and not _same(_tokens(pair.source), _tokens(pair.target)):
            return None
        # Capitals are a name or a title, unless all are.
        target = pair.target.lower() if pair.target.isupper() else pair.target
        words = words_of(target[:1].lower() + target[1:])
        for translated in self._translated:
            known = [word for word in words if word in translated]
            if len(words) < _LEAST or max(map(len, known), default=0) < _LONG:
                continue
            for count, share in _EVIDENCE:
                if len(set(known)) >= count and len(known) >= share * len(words):
                    is_code = len(_CODE.findall(target)) >= _CODE_SIGNS
                    return None if is_code else Fault(None, f"untranslated: {quoted(target)}")
        return None


def _tokens(text: str) -> list[str]:
    stripped = (_NO_WORD.sub("", token) for token in text.casefold().split())
    return [token for token in stripped if token]


def _same(source: list[str], target: list[str]) -> bool:
    shared = len(set(source) & set(target))
    return shared > 0 and shared >= _SAME * max(len(set(source)), len(set(target)))
