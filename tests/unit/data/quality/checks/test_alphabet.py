"""Which characters, words and features a vocabulary lacks."""

import pytest

from tests.helpers.data.corpora import tokenizer_config
from transformer.data.quality.base import Side
from transformer.data.quality.checks.characters import Alphabet
from transformer.data.tokenization.tokenizer import Tokenizer

PAIRS = [("walk\tV;PST", "w A k"), ("we go\tV;NFIN", "w i g")]


@pytest.mark.parametrize(
    ("side", "text", "unknown"),
    [
        ("source", "go we\tV;PST", None),
        ("source", "wü\tV;PST;S", '"ü" U+00FC "S" in "wü⟨U+0009⟩V;PST;S"'),
        ("source", "go\tN;FUT", '"N" "FUT" in "go⟨U+0009⟩N;FUT"'),
        ("target", "A g", None),
        ("target", "w wA", '"wA" in "w wA"'),
    ],
)
def test_given_tokens_are_known_or_named(side: Side, text: str, unknown: str | None) -> None:
    config = tokenizer_config(algorithm="char", target="words", vocab_size=None, features=";")
    alphabet = Alphabet(Tokenizer.train(config, lambda: PAIRS))
    for is_training in (True, False):
        assert alphabet.describe(is_training, side, text) == unknown
