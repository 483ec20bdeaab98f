"""Characters and words as tokens: exact decoding, unknown tokens, features, and constraints."""

import io
import pickle
from typing import Any

import torch

from tests.helpers.data.corpora import tokenizer_config
from transformer.data.tokenization.tags import SENTENCE_END, SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.tokenizer import UNK

PAIRS = [("walk\tV;PST", "w A k t"), ("we\u2581 go\tV;NFIN", "w i  g oU"), ("wa\tV;PST", "w A")]


def learned(**changes: Any) -> Tokenizer:
    fields = {"algorithm": "char", "vocab_size": None, **changes}
    return Tokenizer.train(tokenizer_config(**fields), lambda: PAIRS)


MIXED = learned(target="words", features=";")


def test_sides_of_two_kinds_survive_a_checkpoint() -> None:
    file = io.BytesIO()
    torch.save(MIXED.to_state(), file)
    file.seek(0)
    loaded = Tokenizer.from_state(torch.load(file, weights_only=True))
    for tokenizer in (MIXED, loaded, pickle.loads(pickle.dumps(loaded)), loaded.in_one_thread()):
        assert not tokenizer.joint
        [row] = tokenizer.encode_source(["we\u2581 wax\tV;PST;X"])
        spelled = ["w", "e", "<U+2581>", "\u2581", "w", "a", "<unk>", "\u2581[V]", "\u2581[PST]"]
        assert tokenizer.source_subwords(row) == [*spelled, "<unk>"]
        assert tokenizer.decode_source([row[:6] + row[7:9]]) == ["we\u2581 wa\tV;PST"]
        rows = tokenizer.encode_target(["  g   A ", "g Q", " "])
        assert tokenizer.decode_target(rows) == ["g A", "g \u2047", ""]
        assert tokenizer.subwords(rows[1]) == ["\u2581g", "\u2581<unk>"]
        assert tokenizer.sample_target(["g A"], [1]) == rows[:1]
    tagged = loaded.with_tags(Tags(targets=("x",), sentences=2, subwords=9))
    [row] = tagged.encode_source([TaggedText(f"wa{SENTENCE_END}we", SourceTags("x"))])
    assert tagged.source_subwords(row) == ["<2 x>", "w", "a", "< >", "w", "e"]


def test_a_side_of_subwords_takes_nothing_from_the_other() -> None:
    """Characters with features, or decomposed, as the algorithm of the other side too."""
    pairs = [(source, f"{target} {target}") for source, target in PAIRS]
    for changes in ({"features": ";"}, {"decompose": True}):
        config = tokenizer_config(algorithm="char", target="bpe", vocab_size=270, **changes)
        tokenizer = Tokenizer.train(config, lambda: pairs)
        rows = tokenizer.encode_target(["w A"])
        assert tokenizer.decode_target(rows) == ["w A"]
        assert pickle.loads(pickle.dumps(tokenizer)).encode_target(["w A"]) == rows


def test_rare_tokens_and_those_beyond_the_size_are_unknown() -> None:
    joint = learned(features=";")
    assert joint.joint
    assert [token for token in joint.never_written if token != UNK] == [
        token
        for token, name in enumerate(joint.subwords(range(joint.target_vocab_size)))
        if name in ("\u2581[V]", "\u2581[PST]", "\u2581[NFIN]")
    ]
    rare = learned(target="words", min_frequency=2)
    assert rare.subwords(range(4, rare.target_vocab_size)) == ["\u2581w", "\u2581A"]
    small = learned(algorithm="words", joint=False, vocab_size=5)
    assert small.subwords(range(4, small.target_vocab_size)) == ["\u2581w"]


def test_decomposed_characters_are_letters_and_marks_and_come_back_composed() -> None:
    pairs = [("kǎiš\tV", "é 한"), ("ǐ\tV", "e")]
    config = tokenizer_config(
        algorithm="char", vocab_size=None, joint=False, features=";", decompose=True
    )
    tokenizer = Tokenizer.train(config, lambda: pairs)
    # Three letters of a syllable, and a vowel under a mark that was seen above another one.
    rows = tokenizer.encode_source(["ǎiš\tV", "ǐ"])
    assert tokenizer.source_subwords(rows[0]) == ["a", "\u030c", "i", "s", "\u030c", "\u2581[V]"]
    assert tokenizer.decode_source(rows) == ["ǎiš\tV", "ǐ"]
    [row] = tokenizer.encode_target(["é 한"])
    assert tokenizer.subwords(row) == ["e", "\u0301", "\u2581", "\u1112", "\u1161", "\u11ab"]
    assert Tokenizer.from_state(tokenizer.to_state()).decode_target([row]) == ["é 한"]
