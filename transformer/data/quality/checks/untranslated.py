"""Pairs that are not translated: the target is the source, in words that the corpus translates."""

import re
from collections import Counter
from collections.abc import Iterable

from transformer.data.quality.base import SIDES, Fault, NumberedPair, Side, quoted
from transformer.data.text.parallel import Pair

# A word stands between blanks: hyphens, slashes and the like make compounds, paths and options.
_WORD = re.compile(
    r"""(?<!\S)["'([{«»„“”‚‘‹›]*([^\W\d_]+)["')\]}«»„“”‘’‹›.,;:!?…]*(?!\S)""",
)
# A translated word stands alone in so many pairs, and on both sides, or on the other side, in at
# most this fraction of them.
_MIN_PAIRS, _MAX_KEPT = 3, 0.2
# The commonest translated words hold sentences together; names, titles and lists of terms have few.
_COMMONEST = 200
# A text is of a language if it has so many different ones of these (fewer before a full stop), and
# if so many words, and so large a fraction of them, are translated.
_MIN_COMMON, _MIN_COMMON_OF_A_SENTENCE, _MIN_TRANSLATED, _MIN_FRACTION = 3, 2, 3, 0.5
# Fraction of the tokens of the longer side that are on both sides.
_SAME = 0.9
_NO_WORD = re.compile(r"^[\W_]+|(?<![\W_])[\W_]+$")
_CODE = re.compile(r"[{}$;=|\\<>]|::|->|\(\)|\w_\w")
_MIN_CODE_SIGNS = 2
# The authors of a cited work.
_CITED = re.compile(r"\b[A-Z]\.\s?[A-Z]\w+, (?:[A-Z]\.\s?)+[A-Z]\w+")


def _words(text: str) -> set[str]:
    """Return the words as spelt within a sentence: German nouns keep their capital."""
    words = _WORD.findall(text)
    return {*words[1:], *(word.lower() for word in words[:1])}


class Lexicon:
    """The words of either side that the corpus translates: they seldom stand on both sides."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        """Count words; pairs of the same words on both sides are no evidence."""
        alone, both = (Counter[str](), Counter[str]()), Counter[str]()
        for source, target in pairs:
            sides = _words(source), _words(target)
            if sides[0] != sides[1]:
                shared = sides[0] & sides[1]
                both.update(shared)
                for counts, words in zip(alone, sides, strict=True):
                    counts.update(words - shared)
        self._translated: dict[Side, tuple[frozenset[str], frozenset[str]]] = {}
        for side, counts, other in zip(SIDES, alone, alone[::-1], strict=True):
            translated = [
                word
                for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
                if count >= _MIN_PAIRS and both[word] + other[word] <= _MAX_KEPT * count
            ]
            self._translated[side] = frozenset(translated), frozenset(translated[:_COMMONEST])

    def is_in(self, language: Side, text: str) -> bool:
        """Whether a text is certainly a sentence in the language of a side."""
        translated, commonest = self._translated[language]
        words = _WORD.findall(text)
        known = [word for word in words if word in translated or word.lower() in commonest]
        common = {word for word in known if word.islower()} & commonest
        is_sentence = text.rstrip().endswith(".")
        min_common = _MIN_COMMON_OF_A_SENTENCE if is_sentence else _MIN_COMMON
        min_known = max(_MIN_FRACTION * len(text.split()), _MIN_TRANSLATED)
        return len(common) >= min_common and len(known) >= min_known


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
