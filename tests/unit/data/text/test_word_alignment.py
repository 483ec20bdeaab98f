"""Pharaoh links: read, written, checked, and what they mean among pieces."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.common.errors import InputError
from transformer.data.text.word_alignment import (
    NO_WORD,
    format_links,
    linked_subwords,
    parse_links,
    read_links,
    subword_words,
    word_count,
)
from transformer.data.tokenization.normalization import normalize
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.tokenizer import TokenizerConfig

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
    # Word 2 has no subwords, and is no tag.
    assert linked_subwords(links, [NO_WORD, 0, 1], [0, 1]).tolist() == [
        [False] * 3,
        [False, True, False],
    ]


def test_links_are_read_beside_their_text(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("2-1 0-0\n\n0p0\n")
    read = list(read_links(tmp_path / "links", PAIRS))
    assert [sorted(links.sure) for links in read] == [[(0, 0), (2, 1)], [], []]
    assert read[2].possible == {(0, 0)}
    # Features are words after those of the text.
    forms = [("look  up\tV;PST", "looked up"), ("a\tN", "a"), ("b", "b")]
    (tmp_path / "links").write_text("0-0 3-0\n1-0\n0-0\n")
    read = list(read_links(tmp_path / "links", forms, features=";"))
    assert [sorted(links.sure) for links in read] == [[(0, 0), (3, 0)], [(1, 0)], [(0, 0)]]
    tokenizer = Tokenizer.train(
        TokenizerConfig(algorithm="char", vocab_size=None, features=";"), lambda: forms
    )
    for source, _ in forms:
        [ids] = tokenizer.encode_source([source])
        assert max(tokenizer.source_words(ids, source)) + 1 == word_count(source, ";")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n\n", r"2 lines of links for 3 sentence pairs"),
        ("3-0\n\n\n", r"links:1: '3-0' is not a link of .*words \(here 3 and 2\)"),
        ("\n\n0p1\n", r"links:3: '0p1' is not a link .*words \(here 1 and 1\)"),
        ("0-0 1-1-1\n\n\n", r"1: '1-1-1' is no"),
    ],
)
def test_links_that_do_not_fit_the_text_are_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "links").write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_links(tmp_path / "links", PAIRS))


def test_each_subword_has_its_word() -> None:
    assert subword_words(["▁the", "▁do", "g", "."]) == [0, 1, 1, 1]
    # What only a search can put together: no start, spaces that spell nothing, byte spaces.
    assert subword_words(["dog", "▁", "▁cat", "▁"]) == [0, 1, 1, 1]
    assert subword_words(["▁a", "<0x20>", "b", "<0xC3>"]) == [0, 1, 1, 1]
    assert subword_words(["▁", "▁"]) == [-1, -1]
    # Byte pairs with a suffix, and a subword of two words.
    assert subword_words(["d", "og▁", "▁", "r", "uns▁"]) == [0, 0, 1, 1, 1]
    assert subword_words(["▁the", "▁", "New▁York", "▁", "dog"]) == [0, 1, 1, 3, 3]


# A line holds no line end.
TEXTS = st.text(
    st.sampled_from("abhund \t\u00a0\u2581\u2028éß.<0x20>s🙂")
    | st.characters(exclude_characters="\n")
)


@given(TEXTS, st.integers(0, 2**32 - 1))
def test_subwords_have_the_words_of_their_text(text: str, seed: int) -> None:
    tokenizer = tiny_tokenizer().with_sampling(0.3)
    for ids in (*tokenizer.encode_source([text]), *tokenizer.sample_source([text], [seed])):
        words = subword_words(tokenizer.source_subwords(ids))
        assert max(words, default=-1) + 1 == word_count(text)
        assert words == sorted(words)
        # Each word alone is spelled by its own subwords.
        spelled = [
            tokenizer.decode_target([[i for i, w in zip(ids, words, strict=True) if w == word]])[0]
            for word in range(word_count(text))
        ]
        assert spelled == [word for word in normalize(text).split(" ") if word]
