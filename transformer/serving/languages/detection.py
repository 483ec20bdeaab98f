"""The language of a text, among those that a service translates from (py3langid).

Lui and Baldwin 2012, "langid.py: An Off-the-shelf Language Identification Tool".
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

_SAMPLE = 2000
"""The first characters of a text decide."""


class Detected(NamedTuple):
    """A language and its probability in per cent."""

    language: str
    confidence: float


class Detector:
    """Detects those of some languages that py3langid knows."""

    def __init__(self, languages: Sequence[str]) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        # zh-hans is zh in py3langid.
        self._codes = {code.partition("-")[0]: code for code in reversed(languages)}
        self._only = languages[0] if len(languages) == 1 else None
        known = [code for code in self._codes if code in self._identifier.labels]
        if known and self._only is None:
            self._identifier.set_languages(known)

    def detect(self, text: str) -> list[Detected]:
        """The languages, the likeliest first; none for a text without a letter.

        If there is only one language, it is always found, with its probability among all languages
        of py3langid.
        """
        text = text[:_SAMPLE]
        ranked = self._identifier.rank(text) if any(map(str.isalpha, text)) else []
        if self._only is not None:
            probability = dict(ranked).get(self._only.partition("-")[0], 0.0)
            return [Detected(self._only, round(100.0 * float(probability), 1))]
        return [
            Detected(self._codes[code], round(100.0 * float(probability), 1))
            for code, probability in ranked
            if code in self._codes
        ]
