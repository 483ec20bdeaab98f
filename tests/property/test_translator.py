"""Whatever the text: one line in, one line out, in order, and never a crash."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.decoding.translators import tiny_translator

ODD = ["\u2028", "\r", "\x85", "\x00", "\x0b", "\x1c", "\ud800", "\ufeff", "\u200b", "<s>", "</s>"]
TEXT = st.lists(st.sampled_from(ODD) | st.text(max_size=6), max_size=5).map("".join)
TRANSLATOR = tiny_translator(beam_size=2, max_length_offset=4, max_length=32)


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXT, max_size=6))
def test_a_translation_for_each_text_in_order(texts: list[str]) -> None:
    translations = TRANSLATOR.translate(texts)
    assert len(translations) == len(texts)
    for text, translation in zip(texts, translations, strict=True):
        assert "\n" not in translation.text
        if not text.strip():
            assert translation.text == ""
        (translation.text + "\n").encode("utf-8")
    backwards = TRANSLATOR.translate(texts[::-1])
    assert [t.text for t in translations] == [t.text for t in backwards[::-1]]
