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
from transformer.reports.page.summary import summary
from transformer.settings.metrics import MetricsConfig


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
    for update in (5.0, 2e7):  # also where floating point cannot add a billionth
        assert line_chart("One", [Line("x", [(update, 0.0)])]).count("<circle") == 1


def test_no_label_is_cut_at_an_edge() -> None:
    points = [(n * 1e6, n * 4e5) for n in range(1, 13)]
    svg = line_chart("Speed", [Line("x", points)])
    labels = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="(\w+)">([^<]+)<', svg)
    assert {"12,000,000", "5,000,000"} <= {text for *_, text in labels}
    for x, anchor, text in labels:
        width = 6.2 * len(text)  # of a label of 11 pixels
        right = float(x) + (width / 2 if anchor == "middle" else 0)
        assert right - width >= 0
        assert right <= 420


def test_two_runs_share_a_chart_for_each_curve_and_flag() -> None:
    values = report_values(2, "x")
    for run in values["runs"]:
        flags = {f"val/failures/{name}": [(1, 2.0), (2, 1.0)] for name in "abcdefgh"}
        run["curves"] = {"train/loss": [(1, 3.0)], **flags, "val/failures/empty": [(1, 0.0)]}
    page = report_page(values)
    titles = re.findall(r"<figcaption><b>([^<]*)</b>", page)
    assert titles == ["Loss", *"abcdefgh"]  # none for a flag that no output has
    assert len(re.findall(r"<figcaption>.*?>A<.*?>B<.*?</figcaption>", page, re.S)) == 9


def test_many_points_become_as_many_as_pixels() -> None:
    svg = line_chart("Speed", [Line("x", [(float(n), float(n % 7)) for n in range(10_000)])])
    assert 100 < len(re.findall(r'points="([^"]*)"', svg)[0].split()) <= 240


def test_a_distribution_adds_up_and_a_bar_stays_in_its_cell() -> None:
    assert sum(share for _, share in distribution([0, 3, 5, *[1] * 300])) == pytest.approx(100)
    assert 'width="0.0"' in bar(-3, 10)
    assert 'width="0.0"' in bar(None, 0)
    assert 'width="100.0"' in bar(99, 10)


def compared(count: int, words: str) -> Comparison:
    sources, references = [f"s{n} {words}" for n in range(count)], ["a b c"] * count
    return comparison(sources, references, [f"a b {'c' if n % 2 else 'x'}" for n in range(count)])


def comparison(sources: list[str], references: list[str], *systems: list[str]) -> Comparison:
    """What the sentences of a report need to know."""
    right = [(one,) for one in references]
    base, *others = (SentenceScores(s, right, ["chrf"], MetricsConfig()) for s in systems)
    ranked = {"by": "chrf", "better": "higher", "limit": 5_000}
    moved = [movement(sources, right, base, one, **ranked) for one in others]  # type: ignore[arg-type]
    named = [System("", one) for one in systems]
    text = ComparedText("t", sources, right)
    return Comparison(text, named, [], {}, "", [], None, moved, base)


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


@pytest.mark.parametrize("alphabet", ["".join(map(chr, range(0x4E00, 0x4F00))), "'\"&<"])
@pytest.mark.parametrize("runs", [1, 3])
def test_a_page_is_below_one_megabyte(alphabet: str, runs: int) -> None:
    draw = Random(1)
    lines = [["".join(draw.choices(alphabet, k=60)) for _ in range(1_200)] for _ in range(2 + runs)]
    values = report_values(runs, "x")
    found = comparison(*lines)
    rows = values["tests"][0]["sentences"] = (
        sentence_rows(found, {}) if runs == 1 else moved_rows(found)
    )
    assert 600_000 < len(report_page(values).encode()) < 1_000_000
    assert {name for row in rows for name, _, _ in row["texts"]} >= {*"ABC"[: runs - 1]}


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


def test_runs_whose_tests_cannot_be_compared_have_a_test() -> None:
    values = report_values(2, "x")
    assert summary(values | {"tests": []}) == ["The runs have no test in common."]
    values["tests"][0]["comparison"] = None
    assert summary(values) == []


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
