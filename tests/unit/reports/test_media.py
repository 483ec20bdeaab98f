"""A page names sounds and pictures by relative addresses, and nothing elsewhere."""

from pathlib import Path

import pytest

from tests.helpers.runs.reports import report_values
from transformer.reports.page.media import media_link
from transformer.reports.page.page import report_page


@pytest.mark.parametrize(
    ("source", "link"),
    [
        ("/data/a b.wav", "../data/a%20b.wav"),
        ("/run/x/ö#1.png", "x/%C3%B6%231.png"),
        ("/data/talk.wav#t=1.5,4.2", "../data/talk.wav#t=1.5,4.2"),
        ("/data/talk.wav#t=3,", "../data/talk.wav#t=3"),
        ("/data/clips.parquet#row=3", None),
        ("https://example.org/a.wav", None),
        ("/data/a.wav#t=4,2", None),
        ("", None),
    ],
)
def test_links(source: str, link: str | None) -> None:
    assert media_link(source, Path("/run")) == link


@pytest.mark.parametrize(("kind", "tag"), [("speech", "<audio "), ("image", "<img ")])
def test_a_page_shows_what_a_sentence_comes_from(kind: str, tag: str) -> None:
    values = report_values(1, "x")
    for row in values["tests"][0]["sentences"]:
        row["media"] = 'a"b.wav'
    assert tag not in report_page(values)
    page = report_page(values | {"source_kind": kind})
    assert tag in page and 'src="a&#34;b.wav"' in page
    assert "media-src file:" in page
