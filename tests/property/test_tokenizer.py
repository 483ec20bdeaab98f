"""No text is lost or changed by cutting it into pieces, and none becomes a control symbol."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.data.corpora import tokenizer_config
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer, normalize
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

ALGORITHMS = ("unigram", "bpe")
SENTENCES = [
    "the small dog sleeps in the garden",
    "a man and a woman walk along the street",
    "der kleine Hund schläft im Garten",
    "ein Mann und eine Frau gehen die Straße entlang",
]
TEXT = st.text(st.characters(codec=None), max_size=60) | st.text(
    st.sampled_from("aeß <s>/&;'\0\t\r\x0b\x85\u2028\u2581\u0301\ufffd\u3000\U0001f600日"),
    max_size=40,
)


def build(algorithm: str) -> Tokenizer:
    config = tokenizer_config(algorithm=algorithm, vocab_size=300, sampling=0.2)
    return Tokenizer.train(config, lambda: zip(SENTENCES[:2], SENTENCES[2:], strict=True))


TAGS = Tags(targets=("de",), corpora=("web",))
TOKENIZERS = {algorithm: build(algorithm) for algorithm in ALGORITHMS}


@settings(deadline=None, max_examples=300)
@given(TEXT, st.integers(0, 2**64), st.sampled_from(ALGORITHMS))
def test_a_segmentation_is_the_text_and_no_control_symbol(
    text: str, seed: int, algorithm: str
) -> None:
    tokenizer = TOKENIZERS[algorithm]
    targets = tokenizer.encode_target([text]) + tokenizer.sample_target([text], [seed])
    assert tokenizer.decode_target(targets) == [normalize(text)] * 2
    sources = tokenizer.encode_source([text]) + tokenizer.sample_source([text], [seed])
    assert not {PAD, UNK, BOS, EOS} & {subword for row in sources for subword in row}
    # A subword has the space before a word at its start alone, so that no two words become one.
    assert all("\u2581" not in one[1:] for row in targets for one in tokenizer.subwords(row))


@settings(deadline=None, max_examples=200)
@given(TEXT | st.sampled_from(TAGS.spelled), st.integers(0, 9), st.sampled_from(ALGORITHMS))
def test_no_text_has_a_tag_but_its_own(text: str, seed: int, algorithm: str) -> None:
    plain, tagged = TOKENIZERS[algorithm], TOKENIZERS[algorithm].with_tags(TAGS)
    source = TaggedText(text, SourceTags("de", "web"))
    first = plain.source_vocab_size
    for rows in (tagged.encode_source([source]), tagged.sample_source([source], [seed])):
        (row,) = rows
        assert row[:2] == ([first, first + 1] if row else [])
        assert all(subword < first for subword in row[2:])
    assert tagged.encode_target([text]) == plain.encode_target([text])
    assert tagged.sample_target([text], [seed]) == plain.sample_target([text], [seed])


@settings(deadline=None, max_examples=100)
@given(TEXT, st.lists(st.text("aß ;\t", max_size=3), max_size=3))
def test_characters_and_words_are_decoded_to_the_text(text: str, features: list[str]) -> None:
    source = "\t".join([text, ";".join(features)]) if features else text
    for algorithm in ("char", "words"):
        config = tokenizer_config(algorithm=algorithm, vocab_size=None, joint=False, features=";")
        exact = text if text.strip(" ") else ""
        kept = exact if algorithm == "char" else " ".join(filter(None, text.split(" ")))
        tokenizer = Tokenizer.train(config, lambda: [("a", "a"), (source, text)])
        assert tokenizer.decode_target(tokenizer.encode_target([text])) == [kept]
        if source.count("\t") == 1 and features:  # a source has one tab, before its features
            decoded = tokenizer.decode_source(tokenizer.encode_source([source]))
            assert decoded == [kept + source[len(text) :]]


def test_unigram_draws_follow_the_smoothed_probabilities() -> None:
    strength, draws = 0.2, 4000
    tokenizer = TOKENIZERS["unigram"]
    model = tokenizer._source.processor
    drawn = Counter(
        tuple(row) for row in tokenizer.sample_source(["Garten"] * draws, list(range(draws)))
    )
    # All segmentations there are, each a product of its pieces' probabilities.
    candidates = [tuple(ids) for ids in model.nbest_encode("Garten", nbest_size=512)]
    scores = np.array([sum(map(model.get_score, ids)) for ids in candidates])
    expected = np.exp(strength * scores)
    expected /= expected.sum()
    observed = np.array([drawn[ids] for ids in candidates]) / draws
    assert sum(drawn[ids] for ids in candidates) == draws
    # Five standard errors of a frequency, at the most.
    assert np.abs(observed - expected).max() < 5 * np.sqrt(0.25 / draws)
    assert np.corrcoef(observed, expected)[0, 1] > 0.95


def test_bpe_draws_follow_the_algorithm_of_the_paper() -> None:
    dropout, draws = 0.3, 4000
    tokenizer = TOKENIZERS["bpe"].with_sampling(dropout)
    model = tokenizer._source.processor
    score = {model.id_to_piece(i): model.get_score(i) for i in range(model.get_piece_size())}

    def expected(symbols: tuple[str, ...], chance: float) -> Counter[tuple[str, ...]]:
        found: Counter[tuple[str, ...]] = Counter()
        merges = [
            (-score[left + right], index)
            for index, (left, right) in enumerate(pairwise(symbols))
            if left + right in score
        ]
        for _, index in sorted(merges):
            merged = symbols[index] + symbols[index + 1]
            rest = (*symbols[:index], merged, *symbols[index + 2 :])
            found += expected(rest, chance * (1 - dropout))
            chance *= dropout
        found[symbols] += chance
        return found

    chances = expected(tuple("▁theein"), 1.0)
    rows = tokenizer.sample_source(["theein"] * draws, list(range(draws)))
    drawn = Counter(tuple(tokenizer.source_subwords(row)) for row in rows)
    assert len(chances) > 10 and drawn.keys() <= chances.keys()
    # Five standard errors of a frequency, at the most.
    most = max(abs(drawn[one] / draws - chance) for one, chance in chances.items())
    assert most < 5 * np.sqrt(0.25 / draws)
