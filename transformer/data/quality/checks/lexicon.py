"""Which words of a corpus are translated, and which are kept: names, terms, code.

Counts in how many pairs a word stands on one side alone, and in how many on both. Does not know
languages.
"""

import re
from collections import Counter
from collections.abc import Iterable

from transformer.data.quality.pair import SIDES, Side
from transformer.data.text.parallel import Pair

# Blanks count: what hyphens, slashes and the like join is a compound, a path or an option.
_WORD = re.compile(
    r"""(?<!\S)["'([{«»„“”‚‘‹›]*([^\W\d_]+)["')\]}«»„“”‘’‹›.,;:!?…]*(?!\S)""",
)
# Pairs in which a word must have been translated, before that is taken for its habit.
_SEEN = 3
# Of the pairs with a word, those in which it may be kept or stand on the other side.
_KEPT = 0.2
# The commonest of those words hold sentences together; names, titles and lists of terms have few.
# So many different ones, fewer before a full stop, make a text one of their language, if half of
# its words are translated.
_COMMONEST, _LEAST, _LEAST_OF_A_SENTENCE, _SHARE, _WORDS = 200, 3, 2, 0.5, 3


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
        translated = (
            [
                word
                for word, count in counts.most_common()
                if count >= _SEEN and both[word] + other[word] <= _KEPT * count
            ]
            for counts, other in zip(alone, alone[::-1], strict=True)
        )
        self._translated = {
            side: (frozenset(words), frozenset(words[:_COMMONEST]))
            for side, words in zip(SIDES, translated, strict=True)
        }

    def is_in(self, language: Side, text: str) -> bool:
        """Whether a text is surely in the language of a side: a sentence, no name and no title."""
        words = _WORD.findall(text)
        translated, commonest = self._translated[language]
        known = [word for word in words if word in translated or word.lower() in commonest]
        common = {word for word in known if word.islower()} & commonest
        least = _LEAST_OF_A_SENTENCE if text.rstrip().endswith(".") else _LEAST
        return len(common) >= least and len(known) >= max(_SHARE * len(text.split()), _WORDS)
