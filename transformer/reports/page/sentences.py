"""The sentences of a report: with their score and flags, or those that moved between two runs."""

import math
import re
from collections.abc import Container, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, groupby
from typing import Any

from markupsafe import escape

from transformer.common.escaping import escaped
from transformer.evaluation.comparison import Comparison, MovedSentence
from transformer.reports.comparison import letters
from transformer.settings.metrics import METRICS

Row = dict[str, Any]

_BYTES = 850_000
_MARKUP = 250
"""Bytes for the sentences of a page, whose limit is one megabyte; bytes of the tags of each."""


def sentence_rows(
    comparison: Comparison, flags: Mapping[str, Container[int]], *, files: bool = False
) -> list[Row]:
    """The sentences of the first system, the worst first; of many the worst half and a spread.

    ``files``: a source is the path of a file, to which the page has a link.
    """
    [(by, scores)] = comparison.base.scores.items()
    hypotheses = comparison.base.hypotheses
    text = comparison.text
    falling = METRICS[by].better == "lower"

    def row(at: int) -> Row:
        first, *alternatives = text.references[at]
        output, reference = _differences(hypotheses[at], first)
        texts = [("", "ins", output), ("", "del", reference)]
        texts += [("", "del", [(escaped(alternative), False)]) for alternative in alternatives]
        flagged = [flag for flag, lines in flags.items() if at in lines]
        source = text.sources[at]
        return _row(at + 1, scores[at], source, text.word_count(source), texts, flagged)

    order = sorted(comparison.lines, key=scores.__getitem__, reverse=falling)
    sample = [row(at) for at in order[:: len(order) // 100 + 1]]
    limit = max(2, int(len(sample) * _room(sample, files)))
    if limit < len(order):
        rest = order[limit // 2 :]
        order = [*order[: limit // 2], *rest[:: -(-len(rest) // (limit - limit // 2))]]
    return [row(at) for at in order]


def moved_rows(comparison: Comparison, *, files: bool = False) -> list[Row]:
    """The sentences that became most better and worse; if a page has no room, the first.

    See `sentence_rows`.
    """
    names = letters(len(comparison.systems))[1:]
    groups = [
        [_moved(comparison, sentence, movement.by, name, direction) for sentence in sentences]
        for name, movement in zip(names, comparison.movements, strict=True)
        for direction, sentences in (
            ("better", movement.most_better),
            ("worse", movement.most_worse),
        )
    ]
    room = _room([*chain(*groups)], files)
    return [row for group in groups for row in group[: math.ceil(room * len(group))]]


def _room(rows: Sequence[Row], files: bool) -> float:
    """The bytes that a page has for sentences, divided by those of the rows as HTML."""
    parts = [part for row in rows for _, _, parts in row["texts"] for part in parts]
    texts = [row["source"] for row in rows] * (1 + files) + [text for text, _ in parts]
    marked = sum(differs for _, differs in parts) * len("<ins></ins>")
    return _BYTES / (len(escape("".join(texts)).encode()) + marked + _MARKUP * len(rows) or 1)


def _moved(
    comparison: Comparison, sentence: MovedSentence, by: str, letter: str, direction: str
) -> Row:
    base, other = _differences(*sentence.hypotheses)
    reference = [(escaped(sentence.reference), False)]
    texts = [("A", "del", base), (letter, "ins", other), ("reference", "del", reference)]
    words = comparison.text.word_count(sentence.source)
    return _row(sentence.line, sentence.change(by), sentence.source, words, texts, [direction])


def _row(
    line: int, score: float, source: str, words: int, texts: list[Any], flags: list[str]
) -> Row:
    about = {"line": line, "score": round(score, 1), "length": words}
    return {**about, "source": escaped(source), "media": None, "texts": texts, "flags": flags}


def _differences(left: str, right: str) -> tuple[list[Any], list[Any]]:
    """Both texts as parts, each with whether the other text lacks it."""
    sides = _units(escaped(left)), _units(escaped(right))
    matches = SequenceMatcher(None, *sides, autojunk=False).get_matching_blocks()
    same = ({m[side] + n for m in matches for n in range(m.size)} for side in (0, 1))
    left_parts, right_parts = map(_parts, sides, same)
    return left_parts, right_parts


def _units(text: str) -> list[str]:
    """Words with the blanks after them; characters where a text has no blanks."""
    return re.findall(r"\w+\s*|[^\w\s]+\s*|\s+", text) if " " in text else list(text)


def _parts(units: Sequence[str], same: set[int]) -> list[tuple[str, bool]]:
    runs = groupby(enumerate(units), key=lambda one: one[0] not in same)
    return [("".join(unit for _, unit in run), differs) for differs, run in runs]
