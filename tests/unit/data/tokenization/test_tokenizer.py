"""Vocabularies: exact size, clear limits, their way through a checkpoint, and the cache."""

import io
from pathlib import Path

import pytest
import torch

from tests.helpers.data.corpora import tokenizer_config
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, Tags
from transformer.data.tokenization.tokenizer import Tokenizer

ENGLISH = ["the", "small", "dog", "sees", "a", "big", "cat"]
GERMAN = ["der", "kleine", "Hund", "sieht", "eine", "große", "Katze"]
WORDS = ENGLISH + GERMAN
PAIRS = [(" ".join(WORDS[:n]), " ".join(WORDS[-n:])) for n in range(1, 13)]


def pairs() -> list[tuple[str, str]]:
    return PAIRS


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_the_vocabulary_has_exactly_the_size_asked_for(algorithm: str) -> None:
    tokenizer = Tokenizer.train(tokenizer_config(algorithm=algorithm, vocab_size=290), pairs)
    assert (tokenizer.source_vocab_size, tokenizer.target_vocab_size) == (290, 290)
    symbols = ["<pad>", "<unk>", "<s>", "</s>"]
    assert tokenizer.subwords([0, 1, 2, 3]) == tokenizer.source_subwords([0, 1, 2, 3]) == symbols
    # Too large a one names the largest that works.
    with pytest.raises(InputError, match="vocabulary size 8000 is too large") as raised:
        Tokenizer.train(tokenizer_config(algorithm=algorithm, vocab_size=8000), pairs)
    largest = int(str(raised.value).split("tokenizer.vocab_size=")[1].split()[0])
    config = tokenizer_config(algorithm=algorithm, vocab_size=largest)
    assert Tokenizer.train(config, pairs).source_vocab_size == largest


def test_a_word_that_is_added_twice_is_one_subword() -> None:
    config = tokenizer_config(vocab_size=290, add=["Haus", "Hof", "Haus"])
    tokenizer = Tokenizer.train(config, pairs)
    rows = tokenizer.encode_source(["Haus", "Hof"])
    assert list(map(tokenizer.source_subwords, rows)) == [["▁", "Haus"], ["▁", "Hof"]]


def test_long_lines_are_learned_from() -> None:
    """SentencePiece leaves a line of more bytes than it is told to read out, without a word."""
    config = tokenizer_config(algorithm="bpe", vocab_size=290, max_sentences=10_000)
    words = WORDS * 300
    short = Tokenizer.train(config, lambda: [(word, "") for word in words])
    long = Tokenizer.train(config, lambda: [(" ".join(words), "")])
    assert long.subwords(range(290)) == short.subwords(range(290))
    unspaced = Tokenizer.train(
        tokenizer_config(algorithm="bpe", vocab_size=266), lambda: [("日本語" * 4000, "")]
    )
    assert {"日", "本", "語"} <= {*unspaced.subwords(range(266))}


def test_what_cannot_be_learned_is_an_input_error() -> None:
    with pytest.raises(InputError, match="does not hold the alphabet") as raised:
        Tokenizer.train(tokenizer_config(vocab_size=100), pairs)
    smallest = int(str(raised.value).split("tokenizer.vocab_size=")[1].split()[0])
    assert Tokenizer.train(tokenizer_config(vocab_size=smallest), pairs).joint
    with pytest.raises(InputError, match=r"^a\.en: no line has text to learn a vocabulary from"):
        Tokenizer.train(tokenizer_config(), lambda: [("", " "), ("", "")], name="a.en")
    with pytest.raises(InputError, match=r"no token occurs tokenizer\.min_frequency=9999 times"):
        Tokenizer.train(tokenizer_config(algorithm="char", min_frequency=9999), pairs)


@pytest.mark.parametrize("joint", [True, False])
def test_the_state_survives_a_safe_load(joint: bool) -> None:
    untagged = Tokenizer.train(tokenizer_config(joint=joint, vocab_size=284), pairs)
    tokenizer = untagged.with_tags(Tags(targets=("de", "fr"), sentences=3, subwords=40))
    assert tokenizer.fingerprint != untagged.fingerprint
    file = io.BytesIO()
    torch.save(tokenizer.to_state(), file)
    file.seek(0)
    loaded = Tokenizer.from_state(torch.load(file, weights_only=True))
    assert (loaded.joint, loaded.config, loaded.tags) == (joint, tokenizer.config, tokenizer.tags)
    loaded, tokenizer = loaded.tagged(SourceTags("fr")), tokenizer.tagged(SourceTags("fr"))
    texts = [source for source, _ in PAIRS]
    assert loaded.encode_source(texts) == tokenizer.encode_source(texts)
    assert loaded.encode_target(texts) == tokenizer.encode_target(texts)
    assert loaded.fingerprint == tokenizer.fingerprint


def test_text_that_spells_a_control_symbol_is_text() -> None:
    texts = ["<s>", "</s>", "<pad>", "<unk>", "<0x41>", "a <s> b </s>", "日本 \0"]
    tokenizer = Tokenizer.train(tokenizer_config(vocab_size=292), pairs)
    rows = tokenizer.encode_source(texts)
    assert min(map(min, rows)) > 3
    assert tokenizer.decode_target(rows) == texts


def test_the_cache_keeps_a_vocabulary_by_content(tmp_path: Path) -> None:
    config = tokenizer_config(vocab_size=284)
    passes = []

    def counted() -> list[tuple[str, str]]:
        passes.append(1)
        return PAIRS

    first = Tokenizer.train(config, counted, tmp_path, "content")
    learned = len(passes)
    again = Tokenizer.train(config, counted, tmp_path, "content")
    assert (len(passes), again.fingerprint) == (learned, first.fingerprint)
    Tokenizer.train(tokenizer_config(vocab_size=285), counted, tmp_path, "content")
    assert len(passes) > learned
    # Without a fingerprint the text itself is the key.
    other = Tokenizer.train(config, lambda: [*PAIRS[::-1], ("x y z", "z")], tmp_path)
    assert other.fingerprint != first.fingerprint


def test_a_damaged_state_is_an_input_error() -> None:
    state = Tokenizer.train(tokenizer_config(vocab_size=290), pairs).to_state()
    damaged = {"source": torch.zeros(40, dtype=torch.uint8)}, {"config": {"algorithm": "gone"}}
    for part in damaged:
        with pytest.raises(InputError, match="the tokenizer of the checkpoint is damaged"):
            Tokenizer.from_state(state | part)
