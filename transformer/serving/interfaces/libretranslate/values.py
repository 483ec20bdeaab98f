"""Parameters and answers of LibreTranslate's interface, as plain values."""

from collections.abc import Mapping
from typing import Any

from transformer.serving.interfaces.http import Refusal
from transformer.serving.languages.detection import Detected
from transformer.serving.languages.directions import Direction
from transformer.serving.translations import Options, SentenceTranslation, TextTranslation

NOTHING_DETECTED = Detected("en", 0.0)
"""Of a text without a letter."""

_FALSE = ("", "0", "false", "no", "off")


def texts_of(q: Any) -> list[str]:
    """The texts of the parameter ``q``; raises Refusal for another type."""
    texts = q if isinstance(q, list) else [q]
    if not all(isinstance(text, str) for text in texts):
        raise Refusal(400, "Invalid request: q must be a string or a list of strings")
    return texts


def is_set(given: Any) -> bool:
    """Whether a parameter is true."""
    return str(given or "").lower() not in _FALSE


def options_of(asked: Mapping[str, Any], direction: Direction, limit: int) -> Options:
    """The options of a request; raises Refusal for more alternatives than the limit."""
    given = str(asked.get("alternatives") or 0)
    is_number = given.isdecimal() and len(given) < 10
    if not is_number or int(given) > limit:
        wrong = f"must be <= {limit}" if is_number else "is not a number"
        raise Refusal(400, f"Invalid request: alternatives parameter {wrong}")
    return Options(
        direction,
        int(given),
        links=is_set(asked.get("alignment")),
        confidence=is_set(asked.get("confidence")),
        attention=is_set(asked.get("attention")),
    )


def answer_of(
    found: TextTranslation, options: Options, detected: Detected | None
) -> dict[str, Any]:
    """The answer for one text."""
    answer: dict[str, Any] = {"translatedText": found.text}
    if detected is not None:
        answer["detectedLanguage"] = detected._asdict()
    if options.alternatives:
        answer["alternatives"] = found.alternatives(options.alternatives)
    if options.links or options.confidence or options.attention:
        answer["sentences"] = list(map(_details, found.sentences))
    return answer


def _details(found: SentenceTranslation) -> dict[str, Any]:
    """The requested word links, confidence and the like of a sentence."""
    details: dict[str, Any] = {"source": found.source, "translation": found.text}
    if found.links is not None:
        details["alignment"] = [list(link) for link in found.links]
    if found.confidence is not None:
        details["confidence"] = found.confidence
        details["word_confidence"] = found.word_confidence
    if found.alternatives:
        details["alternatives"] = found.alternatives
    if found.attention is not None:
        tokens, weights = found.attention.tokens, found.attention.weights.double()
        details["attention"] = {
            "source_tokens": found.attention.source_tokens,
            "tokens": tokens,
            "weights": [[round(weight, 3) for weight in row] for row in weights.tolist()],
        }
    return details
