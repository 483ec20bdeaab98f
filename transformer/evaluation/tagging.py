"""How well words were tagged: accuracy, each tag's precision and recall, and who is taken for whom.

It knows words and tags, and neither files nor models.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.table import Table

from transformer.errors import InputError
from transformer.evaluation.metrics import Score


@dataclass(frozen=True)
class Tagging:
    """Counts over a corpus.

    Attributes:
        confusion: Words by (right tag, tag given).
        unknown: Words that training has not shown.
        unknown_right: Those of them that got the right tag.
    """

    confusion: Counter[tuple[str, str]]
    unknown: int
    unknown_right: int

    @property
    def words(self) -> int:
        """All words."""
        return self.confusion.total()

    @property
    def tags(self) -> list[str]:
        """Every tag that is right or given somewhere."""
        return sorted({tag for pair in self.confusion for tag in pair})

    def scores(self) -> list[Score]:
        """Accuracy, over all and over unknown words; F1 of each tag; the confusion table.

        From 0 to 100. Where no word is unknown there is no accuracy over such words.
        """
        right = sum(self.confusion[tag, tag] for tag in self.tags)
        said = f"words:{self.words}|unknown:{self.unknown}|tagged-at:first-subword"
        scores = [_score("accuracy", right, self.words, said)]
        if self.unknown:
            said = f"words:{self.unknown}|not-in:train"
            scores.append(_score("accuracy_unknown", self.unknown_right, self.unknown, said))
        scores += [self._of_tag(tag) for tag in self.tags]
        rows = {
            gold: {given: n for given in self.tags if (n := self.confusion[gold, given])}
            for gold in self.tags
        }
        fields = {"name": "confusion", "score": self.words - right, "right": rows}
        signature = "errors|rows:right|columns:given"
        return [*scores, Score("confusion", self.words - right, signature, fields, decimals=0)]

    def _of_tag(self, tag: str) -> Score:
        right = self.confusion[tag, tag]
        gold = sum(n for (wanted, _), n in self.confusion.items() if wanted == tag)
        given = sum(n for (_, said), n in self.confusion.items() if said == tag)
        precision, recall = _percent(right, given), _percent(right, gold)
        said = f"words:{gold}|precision:{precision:.2f}|recall:{recall:.2f}"
        return _score(
            f"f1_{tag}", 2 * right, gold + given, said, precision=precision, recall=recall
        )

    def table(self) -> Table:
        """Who is taken for whom: a row for each right tag, a column for each tag given."""
        table = Table(title="right tag, and the tag given", title_justify="left")
        table.add_column("")
        for tag in self.tags:
            table.add_column(tag, justify="right")
        for gold in self.tags:
            counts = (self.confusion[gold, given] for given in self.tags)
            table.add_row(gold, *(str(count) if count else "." for count in counts))
        return table


def compare_tags(
    words: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
    given: Sequence[Sequence[str]],
    known: Collection[str],
) -> Tagging:
    """Count.

    Args:
        words: Of each sentence.
        right: Their tags.
        given: The tags that a tagger gave them.
        known: Words of the training text.

    Raises:
        InputError: There is no word.
        ValueError: The lengths differ.
    """
    confusion: Counter[tuple[str, str]] = Counter()
    unknown = unknown_right = 0
    for sentence in zip(words, right, given, strict=True):
        for word, gold, tag in zip(*sentence, strict=True):
            confusion[gold, tag] += 1
            if word not in known:
                unknown += 1
                unknown_right += gold == tag
    if not confusion:
        raise InputError("there is no word whose tag could be compared")
    return Tagging(confusion, unknown, unknown_right)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _score(name: str, part: int, whole: int, signature: str, **more: float) -> Score:
    value = _percent(part, whole)
    rounded = {key: round(number, 2) for key, number in more.items()}
    fields = {"name": name, "score": round(value, 2), "signature": signature, **rounded}
    return Score(name, value, signature, fields)
