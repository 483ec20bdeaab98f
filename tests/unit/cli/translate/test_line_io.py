"""Standard input, as it comes."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from transformer.cli.translate import LineReader, open_output
from transformer.common.errors import InputError


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        with suppress(OSError):
            os.close(end)


def test_half_a_line_is_not_ready(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    reader = LineReader(reading)
    lines = iter(reader)
    assert not reader.ready()
    os.write(writing, b"one\ntwo")
    assert reader.ready()
    assert next(lines) == "one"
    assert not reader.ready()
    os.write(writing, b", and its rest\r\nthr")
    assert reader.ready()
    assert next(lines) == "two, and its rest"
    os.write(writing, b"ee")
    assert not reader.ready()
    os.close(writing)
    assert reader.ready()
    assert list(lines) == ["three"]
    assert reader.ready()


def test_what_is_no_text_is_named_by_its_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"\xef\xbb\xbfone\n\xff\n")
    os.close(writing)
    lines = iter(LineReader(reading))
    assert next(lines) == "one"
    with pytest.raises(InputError, match=r"^stdin:2: byte 1 of the line is not UTF-8; convert"):
        next(lines)


def test_a_line_without_an_end_is_not_read_for_ever() -> None:
    zeros = os.open("/dev/zero", os.O_RDONLY)
    try:
        reader = LineReader(zeros)
        assert reader.ready()
        with pytest.raises(InputError, match=r"^stdin:1: the line is longer than 1,000,000 bytes"):
            next(iter(reader))
    finally:
        os.close(zeros)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_without_room_is_named() -> None:
    with pytest.raises(OSError, match="No space left") as raised, ExitStack() as stack:
        open_output(Path("/dev/full"), stack).write(b"one\n")
    assert raised.value.filename == "/dev/full"
