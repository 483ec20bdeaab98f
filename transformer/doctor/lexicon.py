"""Which words of a corpus are translated, and which are kept: names, terms, code.

Counts in how many pairs a word stands on one side alone, and in how many on both. Does not know
languages.
"""

import re
from collections import Counter
from collections.abc import Iterable

from transformer.data.corpus import Pair

# Blanks count: what hyphens, slashes and the like join is a compound, a path or an option.
_WORD = re.compile(
    r"""(?<!\S)["'([{«»„“”‚‘‹›]*([^\W\d_]{2,})["')\]}«»„“”‘’‹›.,;:!?…]*(?!\S)""",
)
# Pairs in which a word must have been translated, before that is taken for its habit.
_SEEN = 3
# Of the pairs with a word, those in which it may be kept or stand on the other side.
_KEPT = 0.2


def words_of(text: str) -> list[str]:
    """Return the words of two letters and more."""
    return _WORD.findall(text)


def _counted(text: str) -> set[str]:
    """Return the words as they are spelt within a sentence: German nouns keep their capital."""
    words = words_of(text)
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
        self.translated = tuple(
            frozenset(
                word
                for word, count in counts.items()
                if count >= _SEEN and both[word] + other[word] <= _KEPT * count
            )
            for counts, other in zip(alone, reversed(alone), strict=True)
        )
        """Words of the source that leave no trace in the target, and the other way round."""
