"""Documents: as many lines out as in, even if the model loses separators between sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import tiny_tokenizer
from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.document_translator import DocumentTranslator, in_documents
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.search import Hypothesis
from transformer.decoding.translator import Translator

TEXTS = ["a dog .", "two\ncats .", "a child .", "", "the dog sees a cat .", "  ", "a dog ."]


@cache
def tokenizer() -> Tokenizer:
    return tiny_tokenizer().with_tags(Tags(targets=("de", "en"), sentences=3, subwords=40))


class Echo:
    """A searcher that gives the source as its translation, without the ``lost`` separators."""

    def __init__(self, lost: int = 0) -> None:
        self.lost = lost
        self.asked: list[list[int]] = []

    def __call__(self, segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        found = []
        for segment in segments:
            self.asked.append(segment.subwords)
            separator = tokenizer().source_vocab_size - 3
            subwords = segment.subwords[tokenizer().leading_tags(segment.subwords) :]
            for _ in range(self.lost if separator in subwords else 0):
                subwords.remove(separator)
            found.append([Hypothesis(tuple(subwords), -1.0, -2.0)])
        return found


def translator(lost: int = 0) -> DocumentTranslator:
    size = tokenizer().source_vocab_size
    model = tiny_transformer(source_vocab_size=size, target_vocab_size=size)
    plain = Translator(model, tokenizer().tagged(SourceTags("de")), search_config(beam_size=1), 512)
    found = in_documents(replace(plain, engine=lambda _: Echo(lost)))
    assert isinstance(found, DocumentTranslator)
    return found


def cleaned(texts: Sequence[str]) -> list[str]:
    return [" ".join(text.split()) for text in texts]


def sentences_asked(documents: DocumentTranslator) -> list[int]:
    separator = tokenizer().source_vocab_size - 3
    searcher = documents.translator.searcher
    assert isinstance(searcher, Echo)
    return [subwords.count(separator) + 1 for subwords in searcher.asked]


def test_a_window_is_translated_together_and_split() -> None:
    documents = translator()
    found = documents.translate(TEXTS)
    assert [t.text for t in found] == cleaned(TEXTS)
    assert sentences_asked(documents) == [3, 1, 1]
    assert found[1].tokens == tuple(found[1].source_tokens)
    # A window that has lost a separator is translated again, sentence by sentence.
    documents = translator(lost=1)
    assert [t.text for t in documents.translate(TEXTS)] == cleaned(TEXTS)
    assert sentences_asked(documents) == [3, 1, 1, 1, 1, 1]


def test_other_tags_and_constraints_begin_a_window() -> None:
    documents = translator()
    texts = ["a", "b", TaggedText("c", SourceTags("en")), TaggedText("d", SourceTags("en")), "e"]
    asked = [None, Constraints(never=("x",)), None, None, None]
    assert [list(window) for window in documents.windows(texts, asked)] == [[0], [1], [2, 3], [4]]
    assert [list(window) for window in documents.windows(texts)] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("done", [0, 4])
def test_resumed_stream_makes_the_same_windows(waits: bool, done: int) -> None:
    texts = [f"{'a ' * (n % 5)}dog" if n % 7 else "" for n in range(25)]
    whole = translator()
    expected = [t.text for t in whole.translate(texts)][done:]
    streamed = translator()
    # Each line comes when the one before has been read, as from somebody who types.
    ready = (lambda: False) if waits else None
    found = streamed.translate_stream(map(Request, texts), ready=ready, done=done)
    assert [t.text for t in found] == expected
    asked = sentences_asked(streamed)
    assert asked == sentences_asked(whole)[len(sentences_asked(whole)) - len(asked) :]


def test_a_full_window_is_answered_before_the_next_line() -> None:
    came: list[str] = []

    def lines() -> Iterator[str]:
        for text in ("a", "b", "c", "d"):
            came.append(text)
            yield text

    stream = translator().translate_stream(lines(), ready=lambda: False)
    assert [next(stream).text for _ in range(3)] == ["a", "b", "c"]
    assert came == ["a", "b", "c"]


def test_an_ended_document_is_answered_at_once_and_lines_before_an_error_too() -> None:
    came: list[str] = []

    def lines() -> Iterator[str]:
        for text in ("a", "b", "\u3000", "c"):
            came.append(text)
            yield text
        raise InputError("stdin:4: not UTF-8")

    stream = translator().translate_stream(lines(), ready=lambda: False)
    assert [next(stream).text for _ in range(3)] == ["a", "b", ""]
    assert len(came) == 3
    assert next(stream).text == "c"
    with pytest.raises(InputError, match="stdin:4"):
        next(stream)


def test_a_model_of_any_weights_gives_as_many_lines_and_no_tag() -> None:
    size = tokenizer().source_vocab_size
    model = tiny_transformer(source_vocab_size=size, target_vocab_size=size)
    search = search_config(algorithm="sampling", temperature=3.0, nbest=1)
    plain = Translator(model, tokenizer().tagged(SourceTags("de")), search, 512)
    found = in_documents(plain).translate(TEXTS * 5)
    assert len(found) == len(TEXTS) * 5
    for translation, text in zip(found, TEXTS * 5, strict=True):
        assert bool(translation.tokens) <= bool(text.strip())
        assert not {"<2 de>", "<2 en>"} & set(translation.tokens)
