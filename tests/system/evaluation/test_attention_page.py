"""The page of attention in a real browser: what it draws, tells and answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.decoding.views import attention_view
from tests.helpers.serving.browser import BINARY, Page, browser
from transformer.reports.attention_page import attention_page

pytestmark = pytest.mark.skipif(BINARY is None, reason="needs chromium, headless")

SOURCE, TARGET = ["▁A", "▁m", "an", "<0x21>", "▁sleeps", "."], ["▁Ein", "▁Mann", "▁schläft", "."]
HOSTILE = "</script ><script>document.documentElement.dataset.error = 'hostile'</script><img src=x>"
ERROR, HEADS = ("document.documentElement.dataset." + name for name in ("error", "heads"))


def written(folder: Path, page: str) -> str:
    file = folder / "attention.html"
    file.write_text(page, encoding="utf-8")
    return file.as_uri()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    view = attention_view(SOURCE, TARGET, layers=2, heads=3)
    return written(tmp_path_factory.mktemp("page"), attention_page(view))


def texts(page: Page, selector: str) -> list[str]:
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})]"
    found: list[str] = page.evaluate(f"{chosen}.map(element => element.textContent)")
    return found


@pytest.mark.parametrize(
    ("kind", "axes"),
    [
        ("encoder", ([*SOURCE, "</s>"], [*SOURCE, "</s>"])),
        ("decoder", (["<s>", *TARGET], ["<s>", *TARGET])),
        ("cross", ([*TARGET, "</s>"], [*SOURCE, "</s>"])),
    ],
)
def test_every_head_is_drawn_with_its_tokens_and_its_words(
    page: Page, address: str, kind: str, axes: tuple[list[str], list[str]]
) -> None:
    page.resize(390, 900, dark=True)
    page.open(f"{address}#{kind}")
    assert page.evaluate(ERROR) is None
    assert page.evaluate(HEADS) == "6"
    assert texts(page, ".queries span") == axes[0] * 2
    assert texts(page, ".keys span") == axes[1] * 6
    assert all(texts(page, ".words"))
    assert texts(page, "#tabs [aria-selected=true]")[0].lower().startswith(kind)
    # The page itself never scrolls sideways, only the grid in it.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_pointing_tells_a_weight_and_a_click_enlarges(page: Page, address: str) -> None:
    page.resize(1400, 900)
    page.open(f"{address}#cross")
    # Row 1 of 5, column 4 of 7 of the first head.
    page.point("#grid .map", 4.5 / 7, 1.5 / 5)
    weight = page.evaluate("data.kinds[2].layers[0][0].weights[1 * 7 + 4]")
    assert texts(page, "#tip") == [f"target ▁Mann → source ▁sleeps  {weight / 1000:.3f}"]
    assert page.evaluate("document.getElementById('tip').checkVisibility()")
    page.open(f"{address}#encoder")
    page.point("[aria-label^='Layer 1, head 2:']", 0.5, 0.5, click=True)
    assert page.evaluate("document.getElementById('large').open")
    assert texts(page, "#large-title") == ["Encoder self-attention, layer 1, head 2"]
    entropy = page.evaluate("data.kinds[0].layers[1][2].entropy")
    assert f"entropy, nats{entropy:.3f}" in texts(page, "#measures div")


def test_a_hostile_sentence_is_shown_as_text(page: Page, tmp_path: Path) -> None:
    view = attention_view([HOSTILE, "&lt;"], ["<b>x</b>"], text=HOSTILE)
    page.resize(1400, 900)
    page.open(written(tmp_path, attention_page(view)) + "#cross/0.0/0.0")
    assert page.evaluate(ERROR) is None
    assert texts(page, "h1") == [HOSTILE]
    assert page.evaluate("document.title") == f"Attention: {HOSTILE}"
    assert HOSTILE in texts(page, "#readout")[0]
    injected = "document.querySelectorAll('img, b b, script:not(#data) ~ script').length"
    assert page.evaluate(injected) == 0
