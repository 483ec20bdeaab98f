"""The picture: what it takes, and what it does without matplotlib."""

import struct

import pytest

from tests.helpers.decoding.views import attention_view
from transformer.report.attention_figure import attention_figure


def vocab_size_key(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_formula_or_a_foreign_letter_is_drawn_as_text(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("matplotlib")
    png = attention_figure(attention_view(["$\\frac$", "▁字", "▁x$y"], ["$"], text="$\\foo{$"))
    width, height = vocab_size_key(png)
    assert min(width, height) > 300
    assert ["boxes" in record.message for record in caplog.records] in ([], [True])


def test_figure_grows_with_heads_and_layers() -> None:
    pytest.importorskip("matplotlib")
    tokens = ["▁a", "▁b"]
    small = vocab_size_key(attention_figure(attention_view(tokens, tokens, layers=1, heads=2)))
    wide = vocab_size_key(attention_figure(attention_view(tokens, tokens, layers=1, heads=4)))
    high = vocab_size_key(attention_figure(attention_view(tokens, tokens, layers=3, heads=2)))
    assert wide[0] > small[0]
    assert high[1] > small[1]
