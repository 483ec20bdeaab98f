"""Tags stand beside the text: no text spells one, and none becomes text."""

from functools import cache

import numpy as np
import pytest

from tests.helpers.data.corpora import SENTENCES, tokenizer_config
from transformer.common.errors import InputError
from transformer.data.text.word_alignment import NO_WORD, linked_subwords, subword_words
from transformer.data.tokenization.tags import SENTENCE_END, SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer

TAGS = Tags(targets=("de", "fr"), corpora=("web",), sentences=3, subwords=40)
DE, FR_WEB = SourceTags("de"), SourceTags("fr", "web")


@cache
def plain(joint: bool = True, sampling: float = 0.0) -> Tokenizer:
    config = tokenizer_config(joint=joint, sampling=sampling, vocab_size=268)
    return Tokenizer.train(config, lambda: [(text, text[::-1]) for text in SENTENCES])


def test_a_source_begins_with_its_tags_unless_it_is_blank() -> None:
    tokenizer = plain().with_tags(TAGS)
    size = plain().source_vocab_size
    texts = [TaggedText("a b", DE), TaggedText("a b", FR_WEB), TaggedText(" ", DE)]
    (subwords,) = plain().encode_source(["a b"])
    assert tokenizer.encode_source(texts) == [
        [size + 1, *subwords],
        [size + 2, size + 3, *subwords],
        [],
    ]
    # A text's own go before those of the tokenizer.
    german = tokenizer.tagged(SourceTags("de", "web"))
    assert german.encode_source(["a b", TaggedText("a b", SourceTags("fr"))]) == [
        [size + 1, size + 3, *subwords],
        [size + 2, size + 3, *subwords],
    ]
    assert tokenizer.encode_target(["a b"]) == [subwords]
    assert [german.leading_tags(row) for row in german.encode_source(["a b", ""])] == [2, 0]


def test_sentences_of_a_document_are_parted_by_the_separator() -> None:
    tokenizer = plain().with_tags(TAGS).tagged(DE)
    size = plain().source_vocab_size
    first, second = plain().encode_source(["a b", "c"])
    document = SENTENCE_END.join(["a b", "c"])
    assert tokenizer.encode_source([document]) == [[size + 1, *first, size, *second]]
    assert tokenizer.decode_target([[*first, size, *second, size + 2]]) == ["a b c"]
    # Without documents the same sign is text.
    assert max(plain().encode_source([document])[0]) < size
    # Segmentations that are drawn have the same tags.
    tokenizer = plain(sampling=0.1).with_tags(TAGS).tagged(FR_WEB)
    size = plain().source_vocab_size
    drawn = tokenizer.sample_source(["d e a b c\na b"] * 20, range(20))
    assert all(row[:2] == [size + 2, size + 3] and row.count(size) == 1 for row in drawn)
    assert len({tuple(row) for row in drawn}) > 1
    assert tokenizer.decode_target(drawn) == ["d e a b c a b"] * 20


def test_other_sampling_or_threads_leave_the_tags() -> None:
    german = plain().with_tags(TAGS).tagged(DE)
    for tokenizer in (german.with_sampling(0.3), german.in_one_thread()):
        assert tokenizer.encode_source(["a b"]) == german.encode_source(["a b"])


@pytest.mark.parametrize(
    ("tags", "wanted", "says"),
    [
        (TAGS, SourceTags(), "needs one of the tags de, fr; set to=de"),
        (TAGS, SourceTags("it"), "to=it is not a tag of the model; set to= to de or fr"),
        (TAGS, SourceTags("de", "news"), "tag=news is not a tag of the model; set tag= to web"),
        (Tags(corpora=("a", "b"), optional=False), SourceTags(), "one of the tags a, b; set tag=a"),
        (Tags(targets=tuple("abcdefghijklmnopqrstu")), SourceTags("z"), "set to= to a .* t or …$"),
    ],
)
def test_an_unknown_or_missing_tag_is_one_line(tags: Tags, wanted: SourceTags, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        plain().with_tags(tags).encode_source([TaggedText("a", wanted)])
    assert "\n" not in str(error.value)


def test_a_tag_is_of_no_word() -> None:
    subwords = ["<2 de>", "\u2581a", "b", "< >", "c", "\u2581d"]
    assert subword_words(subwords) == [NO_WORD, 0, 0, NO_WORD, 1, 2]
    linked = linked_subwords(np.array([[0, 0], [2, 1]]), subword_words(subwords), [0, 1, NO_WORD])
    assert linked.tolist() == [
        [False, True, True, False, False, False],
        [False, False, False, False, False, True],
        [False] * 6,
    ]
