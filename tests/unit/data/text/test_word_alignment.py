"""Pharaoh links: read, written, checked, and what they mean among pieces."""

from pathlib import Path

import numpy as np
import pytest

from transformer.common.errors import InputError
from transformer.data.text.word_alignment import (
    format_links,
    linked_subwords,
    parse_links,
    read_links,
    subword_words,
    word_count,
)

PAIRS = [("a  b c ", "x y"), ("", ""), ("a\u00a0b", "x")]


def test_links_of_words_and_their_pieces() -> None:
    links = parse_links(" 10-2 0-0\t1p3 ", "here", (11, 4))
    assert links.sure == {(10, 2), (0, 0)}
    assert links.possible == {(10, 2), (0, 0), (1, 3)}
    assert format_links(links.possible) == "0-0 1-3 10-2"
    counts = {"": 0, "  ": 0, "a": 1, " a  b ": 2, "a\tb\u00a0c d": 2}
    assert {text: word_count(text) for text in counts} == counts
    links = np.array([[0, 1], [2, 0]], dtype=np.int32)
    linked = linked_subwords(links, source_words=[0, 0, 1, 2], target_words=[0, 1, 1])
    assert linked.astype(int).tolist() == [[0, 0, 0, 1], [1, 1, 0, 0], [1, 1, 0, 0]]
    assert not linked_subwords(links[:0], [0], [0, 1]).any()


def test_links_are_read_beside_their_text(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("2-1 0-0\n\n0p0\n")
    read = list(read_links(tmp_path / "links", PAIRS))
    assert [sorted(links.sure) for links in read] == [[(0, 0), (2, 1)], [], []]
    assert read[2].possible == {(0, 0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n\n", r"2 lines of links for 3 sentence pairs"),
        ("0-0\n\n\n\n\n", r"5 lines of links for 3 sentence pairs"),
        ("3-0\n\n\n", r"links:1: '3-0' is not a link of .*words \(here 3 and 2\)"),
        ("\n\n0p1\n", r"links:3: '0p1' is not a link .*words \(here 1 and 1\)"),
        ("\n0-0\n\n", r"links:2: '0-0' is not a link .*words \(here 0 and 0\)"),
        ("0-0 -1-0\n\n\n", r"1: '-1-0' is no"),
        ("0-0 1-1-1\n\n\n", r"1: '1-1-1' is no"),
        ("0-0 ²-0\n\n\n", r"1: '²-0' is no"),
    ],
)
def test_links_that_do_not_fit_the_text_are_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "links").write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_links(tmp_path / "links", PAIRS))


@pytest.mark.parametrize(
    ("subwords", "words"),
    [
        (["▁the", "▁do", "g", "."], [0, 1, 1, 1]),
        (["▁", "dog", "▁", "cat"], [0, 0, 1, 1]),
        # What only a search can put together: no start, spaces that spell nothing, byte spaces.
        (["dog", "▁", "▁cat", "▁"], [0, 1, 1, 1]),
        (["▁a", "<0x20>", "b", "<0xC3>"], [0, 1, 1, 1]),
        (["▁", "▁"], [-1, -1]),
        ([], []),
    ],
)
def test_each_piece_has_its_word(subwords: list[str], words: list[int]) -> None:
    assert subword_words(subwords) == words
