"""Vocabularies: exact size, clear limits, their way through a checkpoint, and the cache."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.data.corpora import tokenizer_config
from transformer.common.errors import InputError
from transformer.data.tokenization.normalization import normalize
from transformer.data.tokenization.tags import SourceTags, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.tokenizer import PAD, UNK

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


def test_what_cannot_be_learned_is_an_input_error() -> None:
    with pytest.raises(InputError, match="does not hold the alphabet") as raised:
        Tokenizer.train(tokenizer_config(vocab_size=100), pairs)
    with pytest.raises(InputError, match="size 5 does not hold the alphabet"):
        Tokenizer.train(tokenizer_config(vocab_size=5), pairs)
    smallest = int(str(raised.value).split("tokenizer.vocab_size=")[1].split()[0])
    assert Tokenizer.train(tokenizer_config(vocab_size=smallest), pairs).joint
    with pytest.raises(InputError, match=r"^a\.en: no line has text to learn a vocabulary from"):
        Tokenizer.train(tokenizer_config(), lambda: [("", " "), ("", "")], name="a.en")
    with pytest.raises(InputError, match=r"no token occurs tokenizer\.min_frequency=9999 times"):
        Tokenizer.train(tokenizer_config(algorithm="char", min_frequency=9999), pairs)

    def broken() -> Iterator[tuple[str, str]]:
        yield PAIRS[-1]
        raise InputError("a.en:2: broken")

    with pytest.raises(InputError, match=r"a\.en:2: broken"):
        Tokenizer.train(tokenizer_config(vocab_size=284), broken)


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


@pytest.mark.parametrize("seen", [0, 50])
def test_text_that_spells_a_control_symbol_is_text(seen: int) -> None:
    texts = ["<s>", "</s>", "<pad>", "<unk>", "<0x41>", "a <s> b </s>"]
    tokenizer = Tokenizer.train(
        tokenizer_config(vocab_size=296 if seen else 292),
        lambda: PAIRS + [(text, text) for text in texts] * seen,
    )
    rows = tokenizer.encode_source(texts)
    assert min(map(min, rows)) > 3
    assert tokenizer.decode_target(rows) == texts


def test_unknown_characters_are_bytes_and_controls_vanish() -> None:
    tokenizer = Tokenizer.train(tokenizer_config(vocab_size=284), pairs)
    (ids,) = tokenizer.encode_source(["日本 \0"])
    assert UNK not in ids
    assert tokenizer.decode_target([[2, *ids, 3, PAD, PAD], []]) == ["日本 \0", ""]


def test_the_sign_for_the_space_is_a_character_of_a_text() -> None:
    config = tokenizer_config(vocab_size=284)
    tokenizer = Tokenizer.train(config, pairs)
    for text in ("\u2581", "a\u2581\u2581 b", "\u2581\uffff"):
        kept = text.replace("\uffff", "\ufffd")
        for ids in (*tokenizer.encode_target([text]), *tokenizer.sample_target([text], [1])):
            assert tokenizer.decode_target([ids]) == [kept]
            assert tokenizer._target.processor.decode(ids) == kept
    # It changes no vocabulary.
    signed = [(f"\u2581{source}", target) for source, target in PAIRS]
    learned = Tokenizer.train(config, lambda: [*signed, ("\u2581", "")])
    assert learned.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("  a   b ", "a b"),
        ("e\u0301", "é"),
        ("a\u2581b", "a\u2581b"),
        ("a\uffff", "a\ufffd"),
        ("\ud83d", "?"),
        ("\u3000ﬁ\t\u00a0Ａ", "\u3000ﬁ\t\u00a0Ａ"),
        (" ", ""),
    ],
)
def test_normalization(text: str, kept: str) -> None:
    assert normalize(text) == kept


@pytest.mark.thorough
def test_learning_is_repeatable_even_from_a_sample() -> None:
    configs = [
        tokenizer_config(algorithm=algorithm, vocab_size=284, max_sentences=20)
        for algorithm in ("unigram", "bpe")
    ]
    code = (
        "from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig\n"
        f"for config in {configs!r}: print(Tokenizer.train(config, lambda: {PAIRS!r}).fingerprint)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = [Tokenizer.train(config, pairs).fingerprint for config in configs]
    assert run.stdout.split() == expected


@pytest.mark.parametrize("joint", [True, False])
def test_the_cache_keeps_a_vocabulary_by_content(tmp_path: Path, joint: bool) -> None:
    config, passes = tokenizer_config(joint=joint, vocab_size=284), []

    def counted() -> list[tuple[str, str]]:
        passes.append(1)
        return PAIRS

    first = Tokenizer.train(config, counted, tmp_path, "content")
    learned = len(passes)
    again = Tokenizer.train(config, counted, tmp_path, "content")
    assert (len(passes), again.fingerprint) == (learned, first.fingerprint)
    Tokenizer.train(tokenizer_config(joint=joint, vocab_size=285), counted, tmp_path, "content")
    assert len(passes) > learned
    # Without a fingerprint the text itself is the key.
    by_text = Tokenizer.train(config, pairs, tmp_path)
    other = Tokenizer.train(config, lambda: [*PAIRS[::-1], ("x y z", "z")], tmp_path)
    assert by_text.fingerprint == first.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.pop("source"),
        lambda state: state.update(source=torch.zeros(40, dtype=torch.uint8)),
        lambda state: state.update(config={"algorithm": "gone"}),
        lambda state: state.update(target="none"),
    ],
)
def test_a_damaged_state_is_an_input_error(damage: Callable[[dict[str, Any]], object]) -> None:
    state = Tokenizer.train(tokenizer_config(vocab_size=290), pairs).to_state()
    damage(state)
    with pytest.raises(InputError, match="the tokenizer of the checkpoint is damaged"):
        Tokenizer.from_state(state)
