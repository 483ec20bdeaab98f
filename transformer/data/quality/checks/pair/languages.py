"""Languages: texts that are in another one than their side.

A text counts only where two signs agree: it has hardly any of the common words of its side, and
the detector is sure of another language. What both sides have in one other language is a quotation,
a name or code; what is the same on both is for `Copies` to judge. Needs py3langid (the extra
``doctor``; Lui and Baldwin 2012, "langid.py"), whose model comes with it. Does not know
translations.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from transformer.data.quality.base import Fault, PairCheck
from transformer.data.quality.checks.lexicon import Lexicon
from transformer.data.quality.pair import SIDES, NumberedPair, bare, quoted

# Fewer characters tell too little, and fewer words are a name.
_CHARACTERS, _LEAST_WORDS = 20, 5
_CONFIDENCE = 0.9
_COMMON_WORDS = 100
# Of the different words of a text, that are common in its language at least.
_COMMON_SHARE = 0.2
# Texts that the language of a side is made out from.
_SAMPLE = 1000

_WORD = re.compile(r"\w+")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class LanguageDetector:
    """Names the language of a text, with a probability."""

    def __init__(self) -> None:
        """Load the model, in about a second the first time.

        Raises:
            ImportError: py3langid is not installed.
        """
        self._identifier = _identifier()
        self.languages = frozenset(self._identifier.labels)
        """The codes that it knows (ISO 639-1)."""

    def detect(self, text: str) -> tuple[str, float]:
        """Return the most probable language, and its probability."""
        language, confidence = self._identifier.classify(text)
        return str(language), float(confidence)


class Language:
    """The language of a side, as its own text shows it."""

    def __init__(self, detector: LanguageDetector, name: str, texts: Sequence[str]) -> None:
        """Make out the language and its common words.

        Args:
            detector: names languages.
            name: of the side in the config: counts if it is a code that the detector knows.
            texts: some of the side.
        """
        self._detector = detector
        detected = [detector.detect(text)[0] for text in texts[:_SAMPLE]]
        code = re.split(r"[-_]", name.lower())[0]
        if code not in detector.languages and detected:
            code = Counter(detected).most_common(1)[0][0]
        self.code = code
        """Of the language (ISO 639-1)."""
        own = (text for text, found in zip(texts, detected, strict=False) if found == code)
        self._common = _most_common(map(_words, own))

    def other(self, text: str) -> str | None:
        """Return the language of a text that is surely not in this one; None: it may be."""
        if len(text) < _CHARACTERS:
            return None
        words = _words(text)
        if len(words) < _LEAST_WORDS or len(words & self._common) >= _COMMON_SHARE * len(words):
            return None
        found, confidence = self._detector.detect(text)
        return found if found != self.code and confidence >= _CONFIDENCE else None


def _most_common(texts: Iterable[set[str]]) -> frozenset[str]:
    counts = Counter(word for words in texts for word in words)
    return frozenset(word for word, _ in counts.most_common(_COMMON_WORDS))


class WrongLanguage(PairCheck):
    """Texts that are surely in another language than their side."""

    name = "language"

    def __init__(
        self, split: str, most: int, own: tuple[Language, Language], lexicon: Lexicon
    ) -> None:
        """Begin to count; see `PairCheck`.

        Args:
            split: as there.
            most: as there.
            own: the languages of the source side and of the target side.
            lexicon: of the corpus: it knows swapped sides, also of a few words.
        """
        super().__init__(split, most)
        self._own, self._lexicon = own, lexicon

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Name the language that a side is in, and the one that it should be in."""
        texts = pair.source, pair.target
        found = [own.other(text) for own, text in zip(self._own, texts, strict=True)]
        if found[0] == found[1] or bare(texts[0]) == bare(texts[1]):
            is_in = self._lexicon.is_in
            swapped = is_in("target", pair.source) and is_in("source", pair.target)
            return Fault(None, f"sides swapped: {quoted(pair.source)}") if swapped else None
        index = 0 if found[0] is not None else 1
        said = f"{found[index]} for {self._own[index].code}: {quoted(texts[index])}"
        return Fault(SIDES[index], said)
