"""Which words of a corpus are translated, and which are kept: names, terms, code.

Counts in how many pairs a word stands on one side alone, and in how many on both. Does not know
languages.
"""

import re
from collections import Counter
from collections.abc import Iterable

from transformer.data.corpus import Pair
from transformer.doctor.pair import SIDES, Side

# Blanks count: what hyphens, slashes and the like join is a compound, a path or an option.
_WORD = re.compile(
    r"""(?<!\S)["'([{«»„“”‚‘‹›]*([^\W\d_]{2,})["')\]}«»„“”‘’‹›.,;:!?…]*(?!\S)""",
)
# Pairs in which a word must have been translated, before that is taken for its habit.
_SEEN = 3
# Of the pairs with a word, those in which it may be kept or stand on the other side.
_KEPT = 0.2
# Such words and their share of a text, that it is in their language; more may be a smaller share.
_EVIDENCE = ((2, 0.5), (3, 0.25))
# Two words are a name or a term; in a longer one, "of the" may be in lower case.
_LEAST, _SMALL, _LONG = 3, 3, 4


def _counted(text: str) -> set[str]:
    """Return the words as they are spelt within a sentence: German nouns keep their capital."""
    words = _WORD.findall(text)
    return {*words[1:], *(word.lower() for word in words[:1])}


class Lexicon:
    """The words of either side that the corpus translates."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        """Count words; pairs of the same words on both sides tell nothing."""
        alone: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        both: Counter[str] = Counter()
        for source, target in pairs:
            sides = _counted(source), _counted(target)
            if sides[0] != sides[1]:
                shared = sides[0] & sides[1]
                both.update(shared)
                for counts, words in zip(alone, sides, strict=True):
                    counts.update(words - shared)
        # Words of the source that leave no trace in the target, and the other way round.
        self._translated = {
            side: frozenset(
                word
                for word, count in counts.items()
                if count >= _SEEN and both[word] + other[word] <= _KEPT * count
            )
            for side, counts, other in zip(SIDES, alone, alone[::-1], strict=True)
        }

    def is_in(self, language: Side, text: str) -> bool:
        """Whether a text is surely in the language of a side: a sentence, no name and no title."""
        words = _WORD.findall(text.lower() if text.isupper() else text)
        if len(words) < _LEAST:
            return False
        translated = self._translated[language]
        known = [word for word in words[1:] if word in translated]
        lower = [word for word in known if word.islower()]
        if len(lower) < _SMALL and not any(len(word) >= _LONG for word in lower):
            return False
        known += list({words[0], words[0].lower()} & translated)[:1]
        return any(
            len(set(known)) >= count and len(known) >= share * len(words)
            for count, share in _EVIDENCE
        )
