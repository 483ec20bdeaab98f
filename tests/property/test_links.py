"""The words of pieces are the words of the text, however the tokenizer cuts it."""

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.data.text.word_alignment import (
    Link,
    format_links,
    parse_links,
    subword_words,
    word_count,
)
from transformer.data.tokenization.normalization import normalize

# Of a line: it holds no line end.
TEXTS = st.text(
    st.sampled_from("abhund \t\u00a0\u2581\u2028éß.<0x20>s🙂")
    | st.characters(exclude_characters="\n")
)


@given(TEXTS, st.integers(0, 2**32 - 1))
def test_pieces_have_the_words_of_their_text(text: str, seed: int) -> None:
    tokenizer = tiny_tokenizer().with_sampling(0.3)
    for ids in (*tokenizer.encode_source([text]), *tokenizer.sample_source([text], [seed])):
        words = subword_words(tokenizer.source_subwords(ids))
        assert max(words, default=-1) + 1 == word_count(text)
        assert words == sorted(words)
        # Each word alone is spelled by its own pieces.
        spelled = [
            tokenizer.decode_target([[i for i, w in zip(ids, words, strict=True) if w == word]])[0]
            for word in range(word_count(text))
        ]
        assert spelled == [word for word in normalize(text).split(" ") if word]


@given(st.frozensets(st.tuples(st.integers(0, 999), st.integers(0, 999))))
def test_links_survive_writing_and_reading(links: frozenset[Link]) -> None:
    assert parse_links(format_links(links), "here", (1000, 1000)).sure == links
