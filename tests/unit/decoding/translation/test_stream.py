"""Lines in, lines out, as they come."""

from collections.abc import Iterator

import pytest

from tests.helpers.decoding.translators import PAIRS, tiny_translator
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, parse_tags, with_tags
from transformer.decoding.batching import without_end

TEXTS = [source for source, _ in PAIRS] + ["", "dog", "a cat reads the book . the child sleeps ."]


def test_stream_equals_list_and_reads_one_window_ahead() -> None:
    translator = tiny_translator(batch_tokens=5000, beam_size=1, max_length_offset=2)
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for read in range(1, 61):
            yield TEXTS[read % len(TEXTS)] + "\n" * (read % 2)

    stream = translator.translate_stream(lines())
    first = next(stream)
    assert read == 8
    translations = [first, *stream]
    expected = translator.translate([TEXTS[index % len(TEXTS)] for index in range(1, 61)])
    assert [t.text for t in translations] == [t.text for t in expected]


def test_a_line_keeps_its_tags() -> None:
    line = without_end(with_tags("a dog\r\n", SourceTags("de")))
    assert (line, parse_tags(line)) == ("a dog", SourceTags("de"))


def test_a_stream_answers_before_it_waits() -> None:
    translator = tiny_translator(beam_size=1)
    sent: list[str] = []

    def lines() -> Iterator[str]:
        for line in ("a dog\r\n", "\n", "two cats"):
            sent.append(line)
            yield line

    stream = translator.translate_stream(lines(), ready=lambda: False)
    for count in (1, 2, 3):
        next(stream)
        assert len(sent) == count
    assert list(stream) == []


def test_lines_before_an_error_are_translated() -> None:
    def lines() -> Iterator[str]:
        yield "a dog"
        yield "two cats"
        raise InputError("stdin:3: not UTF-8")

    translator = tiny_translator(beam_size=1)
    stream = translator.translate_stream(lines(), attention=True)
    assert [next(stream), next(stream)] == translator.translate(["a dog", "two cats"])
    with pytest.raises(InputError, match="stdin:3"):
        next(stream)
