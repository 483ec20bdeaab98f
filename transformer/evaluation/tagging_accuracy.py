"""Accuracy of tags: of all words, of unknown words, and F1 of each tag."""

from collections import Counter
from collections.abc import Container, Sequence

from transformer.evaluation.metrics import Score


def tag_scores(
    words: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    predictions: Sequence[Sequence[str]],
    training: Container[str],
) -> list[Score]:
    """Accuracy of all and of unknown words, F1 of each tag, in percent.

    A word is unknown if ``training``, the words of the training text, does not have it.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    unknown: Counter[bool] = Counter()
    for sentence in zip(words, references, predictions, strict=True):
        for word, reference, prediction in zip(*sentence, strict=True):
            pairs[reference, prediction] += 1
            if word not in training:
                unknown[reference == prediction] += 1
    tags = sorted({tag for pair in pairs for tag in pair})
    hits = sum(pairs[tag, tag] for tag in tags)
    settings = f"words:{pairs.total()}|unknown:{unknown.total()}|tagged-at:first-subword"
    scores = [Score.of("accuracy", _percent(hits, pairs.total()), settings)]
    if unknown:
        percent = _percent(unknown[True], unknown.total())
        settings = f"words:{unknown.total()}|not-in:train"
        scores.append(Score.of("accuracy_unknown", percent, settings))
    return scores + [_f1(tag, pairs) for tag in tags]


def _f1(tag: str, pairs: Counter[tuple[str, str]]) -> Score:
    hits = pairs[tag, tag]
    occurrences = sum(n for (reference, _), n in pairs.items() if reference == tag)
    predictions = sum(n for (_, prediction), n in pairs.items() if prediction == tag)
    precision = _percent(hits, predictions)
    recall = _percent(hits, occurrences)
    return Score.of(
        f"f1_{tag}",
        _percent(2 * hits, occurrences + predictions),
        f"words:{occurrences}|precision:{precision:.2f}|recall:{recall:.2f}",
        precision=round(precision, 2),
        recall=round(recall, 2),
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
