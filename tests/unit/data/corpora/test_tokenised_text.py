"""Text that is tokenised already comes back as it was: its spaces are its words."""

from collections.abc import Iterator

import pytest

from tests.helpers.data.corpora import tokenizer_config
from transformer.data.tokenization.tokenizer import Tokenizer

LINES = [
    "zwei männer , der eine mit hut , sagen &quot; ja &quot; .",
    "a woman &apos;s hat &amp; a man in a t-shirt .",
    "i can 't tell who 's there ; don 't you ?",
    "ein rot @-@ weißes schild ( 3.5 m ) , ca. 120 cm &#124; -- &apos; .",
    "彼 は ５ 時 に 行 き ま す 。",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
]
UNSEEN = ["the girls &apos; dogs &lt; 42 € .", "狼 が 来 た ！", "'' . &quot;"]


def pairs() -> Iterator[tuple[str, str]]:
    return zip(LINES, LINES[::-1], strict=True)


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_every_line_comes_back(algorithm: str) -> None:
    config = tokenizer_config(algorithm=algorithm, vocab_size=335, sampling=0.3)
    tokenizer = Tokenizer.train(config, pairs)
    for lines in (LINES, UNSEEN):
        assert tokenizer.decode_target(tokenizer.encode_target(lines)) == lines
        for seed in range(5):
            drawn = tokenizer.sample_target(lines, [seed] * len(lines))
            assert tokenizer.decode_target(drawn) == lines
    (spaced,) = tokenizer.decode_target(tokenizer.encode_target(["  a  woman  &apos;s hat  "]))
    assert spaced == "a woman &apos;s hat"
    # Each word between spaces begins a subword, so that no translation can run two together.
    for ids, line in zip(tokenizer.encode_target(LINES), LINES, strict=True):
        starts = [subword.rfind("▁") for subword in tokenizer.subwords(ids)]
        assert max(starts) == 0 and starts.count(0) == len(line.split())
