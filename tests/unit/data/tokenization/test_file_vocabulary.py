"""Vocabularies of files and of bytes: their ids, symbols, spelling, and the text they give back."""

import gzip
import io
import pickle
import unicodedata
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from tests.helpers.data.vocabulary_files import (
    byte_level_file,
    sentencepiece_file,
    suffix_file,
    word_piece_file,
)
from transformer.common.errors import InputError
from transformer.data.text.word_alignment import NO_WORD
from transformer.data.tokenization.file_vocabulary import FileVocabulary, with_tokens
from transformer.data.tokenization.tags import SENTENCE_END, SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK, TokenizerConfig


def pocket(language: str) -> list[str]:
    file = files("transformer").parent / "data" / "pocket" / f"train.{language}.gz"  # type: ignore[attr-defined]
    return gzip.decompress(file.read_bytes()).decode().split("\n")[:-1]


TEXTS = [*pocket("en")[::40], *pocket("de")[::40]]


def opened(algorithm: str, file: Any = None, **changes: Any) -> Tokenizer:
    config = TokenizerConfig(algorithm=algorithm, file=file, **changes)  # type: ignore[arg-type]
    return Tokenizer.train(config, lambda: [])


def rows(tokenizer: Tokenizer) -> tuple[int | None, ...]:
    assert isinstance(tokenizer._source, FileVocabulary)
    return tokenizer._source.rows


@pytest.mark.parametrize("kind", ["unigram", "word"])
def test_a_model_of_sentencepiece_cuts_as_itself_with_our_ids(kind: str, tmp_path: Path) -> None:
    symbols = {"user_defined_symbols": ["<sep>"], "control_symbols": ["<task>"]}
    file = sentencepiece_file(tmp_path / "a.model", TEXTS, kind, **symbols)
    tokenizer, theirs = opened("sentencepiece", file), sentencepiece.SentencePieceProcessor(file)
    to_theirs = rows(tokenizer)
    assert to_theirs[: EOS + 1] == (5, 0, None, 2)
    assert sorted(row for row in to_theirs if row is not None) == list(range(len(theirs)))
    assert list(to_theirs[4:]) == sorted({*range(len(theirs))} - {5, 0, 2})
    assert theirs.is_control(theirs.piece_to_id("<task>")) and tokenizer.joint
    assert {PAD, BOS, EOS}.isdisjoint(tokenizer.never_written)
    texts = [*TEXTS[:20], "ﬁne <sep>  caf\u0065\u0301 \u2581 <s></s><task> 日本", " ", ""]
    for text, ids in zip(texts, tokenizer.encode_source(texts), strict=True):
        assert [to_theirs[token] for token in ids] == theirs.encode(text)
        assert tokenizer.decode_target([ids]) == [theirs.decode(theirs.encode(text))]
        if kind == "unigram":  # all characters are known
            shown = " ".join(unicodedata.normalize("NFKC", text).replace("\u2581", " ").split())
            assert tokenizer.decode_target([ids]) == [shown]


def test_symbols_of_a_file_without_them_are_added_and_never_spelled_twice(tmp_path: Path) -> None:
    none = {"unk_id": 3, "bos_id": -1, "eos_id": -1, "pad_id": -1}
    words = {"user_defined_symbols": ["<pad>", "<s>"]}
    tokenizer = opened("sentencepiece", sentencepiece_file(tmp_path / "a", TEXTS, **none, **words))
    assert rows(tokenizer)[:4] == (None, 3, None, None)
    spelled = tokenizer.subwords(range(tokenizer.target_vocab_size))
    assert len(set(spelled)) == len(spelled)
    [ids] = tokenizer.encode_source(["a <pad> b"])
    assert tokenizer.decode_source([[PAD, BOS, *ids, EOS]]) == ["a <pad> b"]
    assert PAD not in ids


def test_bytes_have_the_ids_of_byt5() -> None:
    transformers = pytest.importorskip("transformers")
    theirs, tokenizer = transformers.ByT5Tokenizer(), opened("bytes")
    assert tokenizer.source_vocab_size == len(theirs) + 1 == 385  # there is no bos
    for text in ("Größe <extra_id_0> is <extra_id_124>.", "日本 \u2581 </s>x", "\0<extra_id_125>"):
        [ids] = tokenizer.encode_source([text])
        assert tokenizer.decode_source([ids]) == [text]
        if "</s>" not in text and "_125" not in text:
            assert [rows(tokenizer)[token] for token in [*ids, EOS]] == theirs(text).input_ids
    [ids] = tokenizer.encode_target(["é b<extra_id_7>"])
    assert tokenizer.subwords(ids) == ["<0xC3>", "<0xA9>", "\u2581", "b", "<extra_id_7>"]
    assert tokenizer.decode_target([ids[1:3]]) == ["\ufffd "]


def test_a_tokenizer_json_cuts_as_in_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    file = byte_level_file(tmp_path / "tokenizer.json", TEXTS)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=file)
    tokenizer = opened("huggingface", file)
    assert rows(tokenizer)[:6] == (1, 3, 0, 2, 4, 5)
    for text in [*TEXTS[:20], "  Two  spaces ", "日本 \u2581\0 \ud800"]:
        [ids] = tokenizer.encode_source([text])
        whole = text.encode("utf-8", "replace").decode()
        assert [rows(tokenizer)[i] for i in [BOS, *ids, EOS]] == theirs(whole).input_ids
        assert tokenizer.decode_source([[BOS, *ids, EOS]]) == [whole]
    # A symbol in a text is text; another added token is itself.
    [ids] = tokenizer.encode_source(["</s> a<mask>"])
    assert tokenizer.source_subwords(ids)[-1] == "<mask>" and min(ids) > EOS
    assert tokenizer.decode_source([ids]) == ["</s> a<mask>"]
    grown = tokenizer.with_words(["<new>"])
    assert grown.encode_source(["<new>"])[0][-1] == tokenizer.source_vocab_size
    # A space in a token would make a tag of it.
    (tmp_path / "grown").write_bytes(with_tokens(Path(file).read_bytes(), ["New York"]))
    grown = opened("huggingface", str(tmp_path / "grown"))
    assert grown.source_subwords(grown.encode_source(["New York"])[0]) == ["New▁York"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        # Its normalizer takes U+00A0 for a space, and leaves U+200B out.
        (sentencepiece_file, "the dog\u00a0! \u200b runs home"),
        (word_piece_file, "the dog,\u00a0! \u200b runs home."),
        (suffix_file, "the dog, \u200b runs home."),
        (byte_level_file, "the dog\u00a0! \u200b runs home."),
    ],
)
def test_words_are_between_the_spaces_of_a_text(make: Any, text: str, tmp_path: Path) -> None:
    kind = "sentencepiece" if make is sentencepiece_file else "huggingface"
    plain = opened(kind, make(tmp_path / "file", TEXTS))
    tokenizer = plain.with_tags(Tags(targets=("de",)))
    [ids] = tokenizer.encode_source([TaggedText(text, SourceTags("de"))])
    first, *words = tokenizer.source_words(ids, text)
    assert first == NO_WORD
    assert words == sorted(words)
    assert {0, 1, 3, 4} <= set(words) <= {0, 1, 2, 3, 4}
    for number, word in enumerate(text.split(" ")):
        of_word = [one for one, of in zip(ids[1:], words, strict=True) if of == number]
        alone = plain.decode_source(plain.encode_source([word]))
        assert plain.decode_source([of_word])[0].strip() == alone[0].strip()


def test_words_of_an_output_are_those_that_it_becomes(tmp_path: Path) -> None:
    """No text is cut so."""
    pieces = opened("sentencepiece", sentencepiece_file(tmp_path / "a", TEXTS, "word"))
    the, because = pieces.encode_target(["the", "because"])
    ids = [*the, UNK, *because]
    [text] = pieces.decode_target([ids])
    assert text.split() == ["the", "\u2047", "because"]
    assert pieces.target_words(ids, text) == [0, 1, 2]

    pieces = opened("huggingface", word_piece_file(tmp_path / "b", TEXTS, 2000))
    [ids] = pieces.encode_target(["the will. has"])
    [text] = pieces.decode_target([ids])
    assert text == "the will. has"
    assert pieces.target_words(ids, "of another text") == [0, 1, 1, 2]


def build(kind: str, folder: Path, **changes: Any) -> Tokenizer:
    if kind == "bytes":
        return opened(kind, **changes)
    make = sentencepiece_file if kind == "sentencepiece" else byte_level_file
    return opened(kind, make(folder / kind, TEXTS), **changes)


@pytest.mark.parametrize("kind", ["sentencepiece", "huggingface", "bytes"])
def test_a_checkpoint_has_the_whole_file(kind: str, tmp_path: Path) -> None:
    tokenizer = build(kind, tmp_path)
    if kind != "bytes":
        content = (tmp_path / kind).read_bytes()
        assert bytes(tokenizer.to_state()["source"].numpy()) == content
        (tmp_path / kind).unlink()
    state = io.BytesIO()
    torch.save(tokenizer.to_state(), state)
    state.seek(0)
    loaded = Tokenizer.from_state(torch.load(state, weights_only=True))
    tags = Tags(targets=("de",), sentences=2, subwords=90)
    text = TaggedText(f"{TEXTS[0]}{SENTENCE_END}{TEXTS[1]}", SourceTags("de"))
    for same in (loaded, pickle.loads(pickle.dumps(tokenizer)), tokenizer.in_one_thread()):
        assert same.fingerprint == tokenizer.fingerprint
        [ids] = same.with_tags(tags).encode_source([text])
        assert same.leading_tags(ids) == 1
        assert same.with_tags(tags).decode_source([ids]) == [f"{TEXTS[0]} {TEXTS[1]}"]


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    model = sentencepiece_file(tmp_path / "a.model", TEXTS)
    tokenizer = byte_level_file(tmp_path / "tokenizer.json", TEXTS)
    for kind, file in (("sentencepiece", tokenizer), ("huggingface", model)):
        with pytest.raises(InputError, match=f"tokenizer={kind} cannot read") as error:
            opened(kind, file)
        assert "INTERNAL" not in str(error.value)
