"""Texts in another language than their side, and pairs that are not translated.

Two signs of another language must agree: hardly any common word of the side, and py3langid (extra
``doctor``; Lui and Baldwin 2012, "langid.py").
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from transformer.common.language_names import short_code
from transformer.data.corpora.split import NumberedPair
from transformer.data.text.parallel import Pair
from transformer.quality.check import SIDES, Fault, Side, bare, quoted

# A word stands between blanks: hyphens, slashes and the like make compounds, paths and options.
_WORD = re.compile(r"""(?<!\S)["'([{«»„“”‚‘‹›]*([^\W\d_]+)["')\]}«»„“”‘’‹›.,;:!?…]*(?!\S)""")
# A translated word stands alone in so many pairs, and on both sides, or on the other side, in at
# most this fraction of them.
_MIN_PAIRS = 3
_MAX_KEPT = 0.2
# The commonest translated words hold sentences together; names, titles and lists of terms have few.
_COMMONEST = 200
# A text is of a language if it has so many different ones of these (fewer before a full stop), and
# if so many words, and so large a fraction of them, are translated.
_MIN_COMMON = 3
_MIN_COMMON_OF_A_SENTENCE = 2
_MIN_TRANSLATED = 3
_MIN_FRACTION = 0.5
# Fraction of the tokens of the longer side that are on both sides.
_SAME = 0.9
_NO_WORD = re.compile(r"^[\W_]+|(?<![\W_])[\W_]+$")
_CODE = re.compile(r"[{}$;=|\\<>]|::|->|\(\)|\w_\w")
_MIN_CODE_SIGNS = 2
# The authors of a cited work.
_CITED = re.compile(r"\b[A-Z]\.\s?[A-Z]\w+, (?:[A-Z]\.\s?)+[A-Z]\w+")


def _words(text: str) -> set[str]:
    """Return the words as spelled within a sentence: German nouns keep their capital."""
    words = _WORD.findall(text)
    return {*words[1:], *(word.lower() for word in words[:1])}


class Lexicon:
    """The words of either side that the corpus translates: they seldom stand on both sides."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        """Count words; pairs of the same words on both sides are no evidence."""
        alone = (Counter[str](), Counter[str]())
        both = Counter[str]()
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
        common = {word for word in known if word == word.lower()} & commonest
        is_sentence = text.rstrip().endswith(".")
        min_common = _MIN_COMMON_OF_A_SENTENCE if is_sentence else _MIN_COMMON
        min_known = max(_MIN_FRACTION * len(text.split()), _MIN_TRANSLATED)
        return len(common) >= min_common and len(known) >= min_known


def find_copy(lexicon: Lexicon, pair: NumberedPair) -> Fault | None:
    """Show the text if both sides are equal, but for case, punctuation and one word in ten."""
    source, target = pair.texts
    if source != target and not is_same(source, target):
        return None
    if len(_CODE.findall(target)) >= _MIN_CODE_SIGNS or _CITED.search(target):
        return None
    if any(lexicon.is_in(language, target) for language in SIDES):
        return Fault(None, f"untranslated: {quoted(target)}")
    return None


def is_same(source: str, target: str) -> bool:
    """Whether nine of ten words are on both sides; case and punctuation are ignored."""
    rough = set(source.lower().split()), set(target.lower().split())
    # Most pairs differ so much that the exact comparison can be skipped.
    if 2 * len(rough[0] & rough[1]) < _SAME * max(map(len, rough)):
        return False
    tokens = [{_NO_WORD.sub("", token) for token in tokens} - {""} for tokens in rough]
    shared = len(tokens[0] & tokens[1])
    return shared > 0 and shared >= _SAME * max(map(len, tokens))


# Shorter texts are not judged.
_MIN_CHARACTERS = 20
# Fewer words are a name.
_MIN_WORDS = 5
# Confidence in another language.
_MIN_CONFIDENCE = 0.9
# Or confidence in the expected language, where several languages share a family (es, gl, an).
_MAX_OWN_CONFIDENCE = 0.01
_COMMON_WORDS = 100
# Fraction of the different words of a text that are common in its language.
_COMMON_FRACTION = 0.2
# Texts from which the language of a side is detected.
_SAMPLE = 1000

# A text is judged if it has so many words that are no names: in lower case, not in a compound, path
# or quotation, and not on the other side.
_MIN_EVIDENCE = 4

_RUN = re.compile(r"\w+")


def _lower_words(text: str) -> set[str]:
    return set(_RUN.findall(text.lower()))


@cache
def _identifier() -> Any:
    """Load the model of py3langid, which takes about a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def common_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the commonest words of some texts, in lower case."""
    counts = Counter(word for text in texts for word in _lower_words(text))
    # Sets have no order that is the same in all processes.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return frozenset(word for word, _ in ranked[:_COMMON_WORDS])


def base_code(name: str) -> str:
    """Return the language of a code or name: ``de`` of "de-AT", "de_AT" or "deu_Latn"."""
    return short_code(re.split("[-_]", name.lower())[0])


class Language:
    """A language by its code, and its common words."""

    def __init__(self, code: str, common: frozenset[str]) -> None:
        self.code = code
        self.common = common

    @classmethod
    def of(cls, name: str, texts: Sequence[str]) -> "Language":
        """Detect the language of some texts, unless the name of their side is its code."""
        texts = texts[:_SAMPLE]
        detected = [_identifier().classify(text)[0] for text in texts]
        code = base_code(name)
        if code not in _identifier().labels and detected:
            code = str(Counter(detected).most_common(1)[0][0])
        own_texts = (
            text for text, language in zip(texts, detected, strict=True) if language == code
        )
        return cls(code, common_words(own_texts))

    def detect_foreign(self, text: str) -> str | None:
        """Return the language of a text that is certainly not in this one, or None."""
        if len(text) < _MIN_CHARACTERS:
            return None
        words = _lower_words(text)
        if len(words) < _MIN_WORDS or len(words & self.common) >= _COMMON_FRACTION * len(words):
            return None
        confidences = dict(_identifier().rank(text))
        if self.code not in confidences:  # it is taken for a related language
            return None
        language, confidence = next(iter(confidences.items()))
        is_sure = confidence >= _MIN_CONFIDENCE or confidences[self.code] <= _MAX_OWN_CONFIDENCE
        return str(language) if language != self.code and is_sure else None


def _is_judged(text: str, other: str) -> bool:
    """Whether a text has enough words to tell its language, beside names and terms."""
    words = {word for word in _WORD.findall(text) if word.islower()}
    # Scripts without capitals may have no blanks, either.
    words |= {
        word for word in _RUN.findall(text) if word.isalpha() and word.lower() == word.upper()
    }
    return len(words - _lower_words(other)) >= _MIN_EVIDENCE


def find_wrong_language(
    languages: tuple[Language, Language], lexicon: Lexicon, pair: NumberedPair
) -> Fault | None:
    """Name the language that a side is in, or say that the sides are swapped (by the lexicon)."""
    texts = pair.texts
    detected = [
        expected.detect_foreign(text) for expected, text in zip(languages, texts, strict=True)
    ]
    if detected[0] == detected[1] or bare(texts[0]) == bare(texts[1]):
        swapped = lexicon.is_in("target", texts[0]) and lexicon.is_in("source", texts[1])
        return Fault(None, f"sides swapped: {quoted(texts[0])}") if swapped else None
    sides = zip(SIDES, languages, detected, texts, texts[::-1], strict=True)
    for side, expected, language, text, other_text in sides:
        if language is not None and _is_judged(text, other_text):
            return Fault(side, f"{language} for {expected.code}: {quoted(text)}")
    return None
