"""The page of a report as text: figures, sentences, and nothing of the data as markup."""

import re
from html.parser import HTMLParser

import pytest

from tests.helpers.runs.reports import HOSTILE, report_values
from transformer.evaluation.comparison.compare import ComparedText, Comparison
from transformer.evaluation.comparison.sentence_deltas import SentenceScores
from transformer.evaluation.metrics import MetricsConfig
from transformer.report.page.figures import Line, bar, distribution, line_chart
from transformer.report.page.page import report_page
from transformer.report.page.sentences import sentence_rows


def test_a_chart_has_every_point_between_its_axes() -> None:
    points = [(100.0 * n, 8.0 / n) for n in range(1, 11)]
    svg = line_chart("Loss", [Line("train", points), Line("val", points[4:5])], mark=500.0)
    drawn = re.findall(r'points="([^"]*)"', svg)[0].split()
    places = [tuple(map(float, one.split(","))) for one in drawn]
    assert len(places) == 10
    assert all(50 <= x <= 406 and 10 <= y <= 194 for x, y in places)
    assert sorted(places) == places  # to the right
    assert [y for _, y in places] == sorted(y for _, y in places)  # a loss that falls
    # The marked point of the first line, and the only one of the second.
    assert svg.count("<circle") == 2
    assert ">1,000<" in svg
    assert line_chart("One", [Line("x", [(5.0, 0.0)])]).count("<circle") == 1


def test_many_points_become_as_many_as_pixels() -> None:
    svg = line_chart("Speed", [Line("x", [(float(n), float(n % 7)) for n in range(10_000)])])
    assert 100 < len(re.findall(r'points="([^"]*)"', svg)[0].split()) <= 240


def test_a_distribution_adds_up_and_a_bar_stays_in_its_cell() -> None:
    assert sum(share for _, share in distribution([0, 3, 5, *[1] * 300])) == pytest.approx(100)
    assert 'width="0.0"' in bar(-3, 10)
    assert 'width="0.0"' in bar(None, 0)
    assert 'width="100.0"' in bar(99, 10)


def compared(count: int, words: str) -> Comparison:
    sources, references = [f"s{n} {words}" for n in range(count)], [("a b c",)] * count
    hypotheses = [f"a b {'c' if n % 2 else 'x'}" for n in range(count)]
    base = SentenceScores(hypotheses, references, ["chrf"], MetricsConfig())
    return Comparison(ComparedText("t", sources, references), [], [], {}, "", [], None, [], base)


def test_sentences_come_with_flags_and_word_differences() -> None:
    rows = sentence_rows(compared(4, "one two"), {"copy": [0], "empty": [0, 3]})
    assert [row["line"] for row in rows] == [1, 3, 2, 4]  # the worst first
    assert [row["flags"] for row in rows] == [["copy", "empty"], [], [], ["empty"]]
    output, reference = rows[0]["texts"]
    assert output[1:] == ("ins", [("a b ", False), ("x", True)])
    assert reference[1:] == ("del", [("a b ", False), ("c", True)])
    assert rows[2]["texts"][0][2] == [("a b c", False)]


def test_of_a_large_text_the_worst_half_and_a_spread_of_the_rest_is_kept() -> None:
    rows = sentence_rows(compared(3_000, "long " * 100), {})
    lines = [row["line"] - 1 for row in rows]
    assert 500 < len(rows) < 1500
    assert len(set(lines)) == len(lines)
    kept = len(rows) // 2
    assert lines[:kept] == list(range(0, 2 * kept, 2))
    assert max(lines) > 2_900


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


@pytest.mark.parametrize("runs", [1, 2])
def test_no_text_of_the_data_is_markup(runs: int) -> None:
    page, plain = (report_page(report_values(runs, text)) for text in (HOSTILE, "harmless"))
    found, expected = Tags(), Tags()
    found.feed(page)
    expected.feed(plain)
    assert found.tags == expected.tags
    assert page.count("<script>") == 1
    assert page.count("&lt;script&gt;") > 20
    assert not re.search(r"https?://(?!www\.w3\.org)|src=(?!x)|@import|url\(", plain)
