"""The alignment error rate against numbers worked out by hand."""

import json
from collections.abc import Set as AbstractSet

import pytest

from transformer.evaluation.alignment_error import count_links
from transformer.reports.scores import format_json

ALL = frozenset({(0, 0), (1, 1), (2, 1)})


NONE: frozenset[tuple[int, int]] = frozenset()
Pairs = list[tuple[AbstractSet[tuple[int, int]], ...]]

# A = 4, S = 2, |A∩S| = 1, |A∩P| = 3 (one of them sure, two only possible).
ONE: Pairs = [({(0, 0), (1, 0), (2, 0), (9, 9)}, {(0, 0), (5, 5)}, {(1, 0), (2, 0), (7, 7)})]
# Links are summed over the corpus first.
SEVERAL: Pairs = [({(0, 0)}, ALL, ALL), (ALL, ALL, ALL), (NONE, {(0, 0)}, NONE)]
SEVERAL += [({(0, 1)}, NONE, NONE)]


@pytest.mark.parametrize(
    ("pairs", "error", "precision", "recall"),
    [
        (ONE, 1 - (1 + 3) / (4 + 2), 3 / 4, 1 / 2),
        (SEVERAL, 1 - 2 * 4 / (5 + 7), 4 / 5, 4 / 7),
        ([(ALL, ALL, ALL)], 0.0, 1.0, 1.0),
        ([(NONE, ALL, ALL)], 1.0, 1.0, 0.0),
        ([(ALL, NONE, NONE)], 1.0, 0.0, 1.0),
        ([(NONE, NONE, NONE)], 0.0, 1.0, 1.0),
    ],
)
def test_rates_by_hand(pairs: Pairs, error: float, precision: float, recall: float) -> None:
    counts = count_links(tuple(map(frozenset, triple)) for triple in pairs)  # type: ignore[misc]
    rates = (counts.error_rate, counts.precision, counts.recall)
    assert rates == pytest.approx((error, precision, recall))


def test_it_is_reported_beside_other_scores() -> None:
    scores = count_links([(frozenset({(0, 0)}), ALL, ALL)]).scores("npairs:1|head:mean")
    assert json.loads(format_json(scores)) == [
        {"name": "AER", "score": 0.5, "signature": "npairs:1|head:mean"},
        {"name": "alignment precision", "score": 1.0, "signature": "npairs:1|head:mean"},
        {"name": "alignment recall", "score": 0.3333, "signature": "npairs:1|head:mean"},
    ]
