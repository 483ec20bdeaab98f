"""The alignment error rate against numbers worked out by hand."""

import json

import pytest

from transformer.evaluation.alignment_error import count_links
from transformer.report.scores import format_json

ALL = frozenset({(0, 0), (1, 1), (2, 1)})


def test_the_formula_with_sure_and_possible_links() -> None:
    # A = 4, S = 2, |A∩S| = 1, |A∩P| = 3 (one of them sure, two only possible).
    proposed = {(0, 0), (1, 0), (2, 0), (9, 9)}
    sure, possible = {(0, 0), (5, 5)}, {(1, 0), (2, 0), (7, 7)}
    counts = count_links([(proposed, sure, possible)])
    assert counts.error_rate == pytest.approx(1 - (1 + 3) / (4 + 2))
    assert counts.precision == pytest.approx(3 / 4)
    assert counts.recall == pytest.approx(1 / 2)


def test_links_are_summed_over_the_corpus_first() -> None:
    pairs = [
        ({(0, 0)}, ALL, ALL),
        (ALL, ALL, ALL),
        (set(), {(0, 0)}, set()),
        ({(0, 1)}, set(), set()),
    ]
    counts = count_links(pairs)
    assert counts.error_rate == pytest.approx(1 - 2 * 4 / (5 + 7))
    assert (counts.precision, counts.recall) == (pytest.approx(4 / 5), pytest.approx(4 / 7))


@pytest.mark.parametrize(
    ("proposed", "sure", "expected"),
    [(ALL, ALL, 0.0), (frozenset(), ALL, 1.0), (ALL, frozenset(), 1.0), (set(), set(), 0.0)],
)
def test_the_ends(
    proposed: set[tuple[int, int]], sure: set[tuple[int, int]], expected: float
) -> None:
    assert count_links([(proposed, sure, sure)]).error_rate == expected


def test_it_is_reported_beside_other_scores() -> None:
    scores = count_links([({(0, 0)}, ALL, ALL)]).scores("npairs:1|head:mean")
    assert json.loads(format_json(scores)) == [
        {"name": "AER", "score": 0.5, "signature": "npairs:1|head:mean"},
        {"name": "alignment precision", "score": 1.0, "signature": "npairs:1|head:mean"},
        {"name": "alignment recall", "score": 0.3333, "signature": "npairs:1|head:mean"},
    ]
