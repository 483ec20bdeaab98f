"""Texts in another language than their side.

A text counts only if two signs agree: it has hardly any of the common words of its side, and
py3langid (extra ``doctor``; Lui and Baldwin 2012, "langid.py") is confident of another language.
Text in the same other language on both sides is a quotation, a name or code.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from transformer.data.quality.base import SIDES, Fault, NumberedPair, bare, quoted
from transformer.data.quality.checks.untranslated import Lexicon

# Shorter texts are not judged; fewer words are a name.
_MIN_CHARACTERS, _MIN_WORDS = 20, 5
# Of another language; or, where several of a family share it (es, gl, an), of the own one.
_MIN_CONFIDENCE, _MAX_OWN_CONFIDENCE = 0.9, 0.01
_COMMON_WORDS = 100
# Fraction of the different words of a text that are common in its language.
_COMMON_FRACTION = 0.2
# Texts from which the language of a side is detected.
_SAMPLE = 1000

_WORD = re.compile(r"\w+")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


@cache
def _identifier() -> Any:
    """Load the model of py3langid, which takes about a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class Language:
    """The language of a side, and its common words."""

    def __init__(self, name: str, texts: Sequence[str]) -> None:
        """Detect the language of some texts, unless the name of their side is its code."""
        texts = texts[:_SAMPLE]
        detected = [_identifier().classify(text)[0] for text in texts]
        code = re.split(r"[-_]", name.lower())[0]
        if code not in _identifier().labels and detected:
            code = str(Counter(detected).most_common(1)[0][0])
        self.code = code
        own = (text for text, language in zip(texts, detected, strict=True) if language == code)
        counts = Counter(word for text in own for word in _words(text))
        self._common = frozenset(word for word, _ in counts.most_common(_COMMON_WORDS))

    def detect_foreign(self, text: str) -> str | None:
        """Return the language of a text that is certainly not in this one, or None."""
        if len(text) < _MIN_CHARACTERS:
            return None
        words = _words(text)
        if len(words) < _MIN_WORDS or len(words & self._common) >= _COMMON_FRACTION * len(words):
            return None
        confidences = dict(_identifier().rank(text))
        language, confidence = next(iter(confidences.items()))
        own = confidences.get(self.code, 1.0)
        is_sure = confidence >= _MIN_CONFIDENCE or own <= _MAX_OWN_CONFIDENCE
        return str(language) if language != self.code and is_sure else None


def find_wrong_language(
    languages: tuple[Language, Language], lexicon: Lexicon, pair: NumberedPair
) -> Fault | None:
    """Name the language that a side is in, or say that the sides are swapped (by the lexicon)."""
    texts = pair.texts
    found = [own.detect_foreign(text) for own, text in zip(languages, texts, strict=True)]
    if found[0] == found[1] or bare(texts[0]) == bare(texts[1]):
        swapped = lexicon.is_in("target", texts[0]) and lexicon.is_in("source", texts[1])
        return Fault(None, f"sides swapped: {quoted(texts[0])}") if swapped else None
    index = 0 if found[0] is not None else 1
    message = f"{found[index]} for {languages[index].code}: {quoted(texts[index])}"
    return Fault(SIDES[index], message)
