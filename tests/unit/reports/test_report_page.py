"""The page of a report as text: figures, sentences, and nothing of the data as markup."""

import re
from html.parser import HTMLParser
from random import Random

import pytest

from tests.helpers.runs.reports import HOSTILE, report_values
from transformer.evaluation.comparison import (
    ComparedText,
    Comparison,
    SentenceScores,
    System,
    movement,
)
from transformer.reports.page.figures import Line, bar, distribution, line_chart
from transformer.reports.page.page import report_page
from transformer.reports.page.sentences import moved_rows, sentence_rows
from transformer.settings.metrics import MetricsConfig


def test_a_chart_has_every_point_between_its_axes() -> None:
    points = [(100.0 * n, 8.0 / n) for n in range(1, 11)]
    svg = line_chart("Loss", [Line("train", points), Line("val", points[4:5])], mark=500.0)
    drawn = re.findall(r'points="([^"]*)"', svg)[0].split()
    positions = [tuple(map(float, position.split(","))) for position in drawn]
    assert len(positions) == 10
    assert all(50 <= x <= 406 and 10 <= y <= 194 for x, y in positions)
    assert sorted(positions) == positions  # to the right
    assert [y for _, y in positions] == sorted(y for _, y in positions)  # a loss that falls
    # The marked point of the first line, and the only one of the second.
    assert svg.count("<circle") == 2
    assert ">1,000<" in svg
    assert line_chart("One", [Line("x", [(2e7, 0.0)])]).count("<circle") == 1
    # Many points become as many as pixels.
    svg = line_chart("Speed", [Line("x", [(float(n), float(n % 7)) for n in range(10_000)])])
    assert 100 < len(re.findall(r'points="([^"]*)"', svg)[0].split()) <= 240


def test_a_distribution_adds_up_and_a_bar_stays_in_its_cell() -> None:
    counts = [0, 3, 5, *[1] * 300]
    shares = distribution(counts, len(counts))
    width = shares[1][0] - shares[0][0]
    assert sum(share * width for _, share in shares) == pytest.approx(100)
    # The other side of a chart has the same bins, so that equal lengths have equal heights.
    assert distribution(counts[:100], len(counts))[0][0] == shares[0][0]
    assert 'width="0.0"' in bar(-3, 10)
    assert 'width="0.0"' in bar(None, 0)
    assert 'width="100.0"' in bar(99, 10)


def comparison(sources: list[str], references: list[str], *systems: list[str]) -> Comparison:
    """What the sentences of a report need to know."""
    right = [(one,) for one in references]
    base, *others = (SentenceScores(s, right, ["chrf"], MetricsConfig()) for s in systems)
    ranked = {"by": "chrf", "better": "higher", "limit": 5_000}
    text = ComparedText("t", sources, right)
    lines = range(len(sources))
    moved = [movement(text, base, one, lines, **ranked) for one in others]  # type: ignore[arg-type]
    named = [System("", one) for one in systems]
    return Comparison(text, named, [], {}, "", [], None, moved, base, lines)


def test_sentences_come_with_flags_and_word_differences() -> None:
    outputs = ["a b x", "a b c", "a b x", "a b c"]
    texts = comparison(["s1", "s2", "s3", "s4"], ["a b c"] * 4, outputs)
    rows = sentence_rows(texts, {"copy": [0], "empty": [0, 3]})
    assert [row["line"] for row in rows] == [1, 3, 2, 4]  # the worst first
    assert [row["flags"] for row in rows] == [["copy", "empty"], [], [], ["empty"]]
    output, reference = rows[0]["texts"]
    assert output[1:] == ("ins", [("a b ", False), ("x", True)])
    assert reference[1:] == ("del", [("a b ", False), ("c", True)])
    assert rows[2]["texts"][0][2] == [("a b c", False)]


def test_a_page_is_below_one_megabyte() -> None:
    draw = Random(1)
    lines = [["".join(draw.choices("'\"&<", k=60)) for _ in range(1_200)] for _ in range(5)]
    values = report_values(3, "x")
    rows = moved_rows(comparison(*lines))
    values["tests"][0]["sentences"] = rows
    assert 600_000 < len(report_page(values).encode()) < 1_000_000
    assert {name for row in rows for name, _, _ in row["texts"]} >= {"A", "B", "C"}


def test_a_section_names_its_run_and_no_score_or_curve_is_left_out() -> None:
    values = report_values(2, "x")
    first, second = values["runs"]
    metrics = {f"val/metric_{number}": [(1, 2.0)] for number in range(8)}
    first = first | {"failures": None, "stress": None, "curves": metrics}
    values["runs"] = [first, second | {"curves": {"val/failures/copy": [(1, 5.0)]}}]
    score = {"name": "COMET", "score": 87.25, "signature": "a model"}
    values["tests"][0]["scores"] = [[*one, score] for one in values["tests"][0]["scores"]]
    page = report_page(values)
    assert "Failures of B" in page and "Robustness of B" in page
    assert "Failures of A" not in page and "Robustness of A" not in page
    assert page.count(">COMET<") == 2 and page.count("87.25") == 2
    keys = re.findall(r'class="key c(\d)">([^<]+)<', page)
    assert keys == [*[("0", "A")] * len(metrics), ("1", "B")]  # the color of a run stays
    assert page.count('<svg class="chart"') == len(metrics) + 1


def tags_of(page: str) -> list[str]:
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    return tags


@pytest.mark.parametrize("runs", [1, 2])
def test_no_text_of_the_data_is_markup(runs: int) -> None:
    page = report_page(report_values(runs, HOSTILE))
    plain = report_page(report_values(runs, "harmless"))
    assert tags_of(page) == tags_of(plain)
    assert page.count("<script>") == 1
    assert page.count("&lt;script&gt;") > 20
    assert not re.search(r"https?://(?!www\.w3\.org)|src=(?!x)|@import|url\(", plain)
