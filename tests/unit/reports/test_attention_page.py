"""The page as text: self-contained, harmless, and with the numbers in it."""

import json
import re
from html.parser import HTMLParser

from tests.helpers.decoding.views import attention_view
from transformer.reports.attention_page import attention_page

HOSTILE = "</script ><script>alert(1)</script> <!-- <script> %%data%% & \u2028 \"'"


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.text.setdefault(self.found[-1][0], []).append(data)


def embedded(page: str) -> dict[str, object]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    data: dict[str, object] = json.loads(text)
    return data


def test_what_stands_in_a_sentence_stays_text() -> None:
    view = attention_view([HOSTILE], ["<b>"], text=HOSTILE)
    harmless = attention_view(["a"], ["b"])
    page = attention_page(view)
    tags = [tag for tag, _ in Elements(page).found]
    assert tags == [tag for tag, _ in Elements(attention_page(harmless)).found]
    seen = HOSTILE.replace("\u2028", "⟨U+2028⟩")
    assert embedded(page)["source"] == seen
    assert "".join(Elements(page).text["title"]).removesuffix("\n") == f"Attention: {seen}"


def test_the_page_holds_every_weight_and_measure() -> None:
    view = attention_view(["▁A", "▁man"], ["▁Ein", "▁Mann"])
    for kind, shown in zip(view.kinds, embedded(attention_page(view))["kinds"], strict=True):  # type: ignore[arg-type]
        assert (shown["queries"], shown["keys"]) == (list(kind.queries), list(kind.keys))
        for layer, row in enumerate(shown["layers"]):
            for head, one in enumerate(row):
                expected = [
                    round(weight * 1000) if seen else -1
                    for weight, seen in zip(
                        kind.weights[layer, head].flatten().tolist(),
                        kind.visible.flatten().tolist(),
                        strict=True,
                    )
                ]
                assert one["weights"] == expected
                character = kind.characters[layer][head]
                assert one["entropy"] == character.entropy
