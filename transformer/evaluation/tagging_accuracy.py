"""Accuracy of tags: of all words, F1 of each tag, and the confusion table."""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

from transformer.evaluation.metrics import Score


@dataclass(frozen=True)
class Tagging:
    """Numbers of words in a corpus."""

    confusion: Counter[tuple[str, str]]
    """By (right tag, predicted tag)."""
    unknown: int
    unknown_right: int

    @property
    def tags(self) -> list[str]:
        return sorted({tag for pair in self.confusion for tag in pair})

    def scores(self) -> list[Score]:
        """Accuracy of all and of unknown words, F1 of each tag, in per cent; the errors."""
        words, right = self.confusion.total(), sum(self.confusion[tag, tag] for tag in self.tags)
        settings = f"words:{words}|unknown:{self.unknown}|tagged-at:first-subword"
        scores = [Score.of("accuracy", _percent(right, words), settings)]
        if self.unknown:
            percent = _percent(self.unknown_right, self.unknown)
            settings = f"words:{self.unknown}|not-in:train"
            scores.append(Score.of("accuracy_unknown", percent, settings))
        scores += [self._f1(tag) for tag in self.tags]
        return [*scores, self._confusion_score(errors=words - right)]

    def _f1(self, tag: str) -> Score:
        hits = self.confusion[tag, tag]
        occurrences = sum(self.confusion[tag, given] for given in self.tags)
        predictions = sum(self.confusion[right, tag] for right in self.tags)
        precision, recall = _percent(hits, predictions), _percent(hits, occurrences)
        return Score.of(
            f"f1_{tag}",
            _percent(2 * hits, occurrences + predictions),
            f"words:{occurrences}|precision:{precision:.2f}|recall:{recall:.2f}",
            precision=round(precision, 2),
            recall=round(recall, 2),
        )

    def _confusion_score(self, errors: int) -> Score:
        """The number of errors; the field ``right`` is {right tag: {given tag: words}}."""
        rows = {
            right: {given: n for given in self.tags if (n := self.confusion[right, given])}
            for right in self.tags
        }
        signature = "errors|rows:right|columns:given"
        fields = {"name": "confusion", "score": errors, "signature": signature, "right": rows}
        return Score("confusion", float(errors), signature, fields, decimals=0)


def compare_tags(
    words: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
    given: Sequence[Sequence[str]],
    training: Container[str],
) -> Tagging:
    """Compare right and given tags; ``training`` has the words of the training text."""
    confusion: Counter[tuple[str, str]] = Counter()
    unknown = unknown_right = 0
    for sentence in zip(words, right, given, strict=True):
        for word, right_tag, given_tag in zip(*sentence, strict=True):
            confusion[right_tag, given_tag] += 1
            unknown += word not in training
            unknown_right += word not in training and given_tag == right_tag
    return Tagging(confusion, unknown, unknown_right)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
