"""Whatever the text: one line in, one line out, in order, and never a crash."""

import select
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.decoding.translators import save_translator, tiny_translator

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


def test_the_command_answers_each_line_before_the_next_is_there(tmp_path: Path) -> None:
    save_translator(tiny_translator(max_length_offset=20), tmp_path / "x.ckpt")
    call = [sys.executable, "-m", "transformer", "translate", "checkpoint=x.ckpt"]
    with subprocess.Popen(
        call, cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        for line in ("a\n", "\n", "a b\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 120)[0], "it waits for more"
            assert process.stdout.readline().endswith("\n")
        process.stdin.close()
        assert process.wait() == 0
