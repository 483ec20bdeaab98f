"""No text of a corpus becomes markup or a command where it is shown; and it can be read back."""

import io
import json
import re
from functools import cache
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.helpers.decoding.views import attention_view
from transformer.common.escaping import escaped, escaped_json
from transformer.quality.check import quoted
from transformer.reports.attention_page import attention_page
from transformer.reports.scores import build_table

HOSTILE = (
    *("\r<script>alert(1)</script>", "\r# heading\r", "![a](b)", "[a](http://b.c)", "<http://b.c>"),
    *("`", "```", "|", "\\|", "\\\\|", "&lt;b&gt;", "<!--", "*a*", "_a_", "~~a~~", "- a", "1. a"),
    *("\u2028", "\u2029", "\x85", "\v", "\f", "\0", "\x1b[2J", "\x9b31m", "\u202e", "\u2066"),
    *("[bold]a[/bold]", "[/]", "[link=http://b.c]a[/link]", "\t", "    ", "\n", "$x$", "⟨U+001B⟩"),
    *("http://a.b", "www.a.b", "a@b.c", "---", "===", "> a", "[a]: http://b.c", "%%data%%"),
    "\ud800",
)
TEXTS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), max_size=6).map("".join)


def read_back(shown: str) -> str:
    return re.sub("⟨U\\+([0-9A-F]{4,6})⟩", lambda found: chr(int(found[1], 16)), shown)


@given(TEXTS)
def test_what_is_escaped_is_one_line_and_reads_back(text: str) -> None:
    assert escaped(text).isprintable()
    assert read_back(escaped(text)) == text
    values = {"text": [text]}
    assert json.loads(escaped_json(values)) == values
    assert escaped_json(values).replace("\n", "").isprintable()


@settings(deadline=None)
@given(TEXTS)
def test_no_text_is_markup_or_a_command_on_a_terminal(text: str) -> None:
    console = Console(file=io.StringIO(), width=1000, force_terminal=True, color_system=None)
    console.print(build_table(text, (text, "b"), [(text, "c")], right=(1,)))
    assert isinstance(console.file, io.StringIO)
    shown = re.sub("\x1b\\[[0-9;]*m", "", console.file.getvalue())
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count(escaped(text).strip(" ")) >= 3
    assert quoted(text).isprintable()


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


@cache
def tags_of_a_page() -> list[str]:
    return Tags(attention_page(attention_view(["a"], ["b"]))).found


@settings(deadline=None, max_examples=50)
@given(TEXTS)
def test_no_text_is_markup_in_the_page_of_attention(text: str) -> None:
    page = attention_page(attention_view([text], [text], text=text))
    assert Tags(page).found == tags_of_a_page()
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert data.isprintable()
    assert read_back(json.loads(data)["source"]) == text
