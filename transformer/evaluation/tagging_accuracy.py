"""Accuracy of tags: overall, precision and recall of each tag, and the confusion table.

It knows words and tags, but neither files nor models.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformer.evaluation.metrics import Score


@dataclass(frozen=True)
class Tagging:
    """Counts over a corpus."""

    confusion: Counter[tuple[str, str]]
    """Words by (right tag, predicted tag)."""
    unknown: int
    """Words that do not occur in training."""
    unknown_right: int
    baseline_right: int
    """Words whose right tag is their most frequent one."""

    @property
    def tags(self) -> list[str]:
        """Every right or predicted tag."""
        return sorted({tag for pair in self.confusion for tag in pair})

    def scores(self) -> list[Score]:
        """Accuracy of all and unknown words, and without context; F1 of tags; the confusion table.

        From 0 to 100. Without unknown words there is no accuracy of them.
        """
        words, right = self.confusion.total(), sum(self.confusion[tag, tag] for tag in self.tags)
        signature = f"words:{words}|unknown:{self.unknown}|tagged-at:first-subword"
        counts = [("accuracy", right, words, signature)]
        if self.unknown:
            signature = f"words:{self.unknown}|not-in:train"
            counts.append(("accuracy_unknown", self.unknown_right, self.unknown, signature))
        signature = f"words:{words}|tag:most-frequent-of-the-word"
        counts.append(("accuracy_baseline", self.baseline_right, words, signature))
        scores = [Score.of(name, _percent(*part), signature) for name, *part, signature in counts]
        scores += [self._tag_score(tag) for tag in self.tags]
        rows = {
            gold: {given: n for given in self.tags if (n := self.confusion[gold, given])}
            for gold in self.tags
        }
        errors = words - right
        signature = "errors|rows:right|columns:given"
        fields = {"name": "confusion", "score": errors, "signature": signature, "right": rows}
        return [*scores, Score("confusion", float(errors), signature, fields, decimals=0)]

    def _tag_score(self, tag: str) -> Score:
        right = self.confusion[tag, tag]
        gold = sum(self.confusion[tag, given] for given in self.tags)
        given = sum(self.confusion[gold, tag] for gold in self.tags)
        precision, recall = _percent(right, given), _percent(right, gold)
        return Score.of(
            f"f1_{tag}",
            _percent(2 * right, gold + given),
            f"words:{gold}|precision:{precision:.2f}|recall:{recall:.2f}",
            precision=round(precision, 2),
            recall=round(recall, 2),
        )


class MostFrequentTags:
    """A tagger without context: each word gets its most frequent tag in training."""

    def __init__(self, sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> None:
        """Count the tags of each word in the (words, tags) of training."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for words, tags in sentences:
            for word, tag in zip(words, tags, strict=True):
                counts[word][tag] += 1
        self._tags = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
        self._most_frequent = sum(counts.values(), Counter()).most_common(1)[0][0]

    def __contains__(self, word: str) -> bool:
        return word in self._tags

    def __getitem__(self, word: str) -> str:
        return self._tags.get(word, self._most_frequent)


def compare_tags(
    words: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
    given: Sequence[Sequence[str]],
    training: MostFrequentTags,
) -> Tagging:
    """Count right and predicted tags of the words."""
    confusion: Counter[tuple[str, str]] = Counter()
    unknown = unknown_right = baseline_right = 0
    for sentence in zip(words, right, given, strict=True):
        for word, gold, tag in zip(*sentence, strict=True):
            confusion[gold, tag] += 1
            unknown += word not in training
            unknown_right += word not in training and gold == tag
            baseline_right += training[word] == gold
    return Tagging(confusion, unknown, unknown_right, baseline_right)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
