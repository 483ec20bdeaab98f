"""Lexical translation probabilities: Model 1 as its formula says, and links as they are counted."""

from collections import defaultdict

import numpy as np
import pytest

from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.data.text.lexical_translation import (
    NULL,
    Lexicon,
    ibm_model_1,
    linked_lexicon,
)
from transformer.data.text.word_alignment import WordLinks

WIDTH = 20


def table(lexicon: Lexicon, width: int = WIDTH) -> dict[tuple[int, int], float]:
    rows = zip(*lexicon, strict=True)
    return {divmod(int(key), width): float(p) for key, p in rows if p > 0}


def plain_model_1(
    pairs: list[tuple[list[int], list[int]]], iterations: int
) -> dict[tuple[int, int], float]:
    """Brown et al. 1993, one loop a sum."""
    probabilities: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in pairs:
            words = [NULL, *source]
            for word in target:
                total = sum(probabilities[s, word] for s in words)
                for s in words:
                    counts[s, word] += probabilities[s, word] / total
        sums: dict[int, float] = defaultdict(float)
        for (s, _), count in counts.items():
            sums[s] += count
        probabilities = defaultdict(float, {pair: c / sums[pair[0]] for pair, c in counts.items()})
    return dict(probabilities)


@pytest.mark.parametrize("iterations", [1, 7])
def test_model_1_is_that_of_the_loops(iterations: int) -> None:
    generator = np.random.default_rng(5)
    pairs = [
        tuple(generator.integers(4, 20, generator.integers(1, 9)).tolist() for _ in range(2))
        for _ in range(600)
    ]
    estimated, expected = (
        table(ibm_model_1(pairs, WIDTH, iterations)),
        plain_model_1(pairs, iterations),
    )
    assert estimated.keys() == expected.keys()
    assert estimated == pytest.approx(expected, rel=1e-9)


def test_links_are_counted_by_source_subword() -> None:
    tokenizer = tiny_tokenizer()
    # The last letters: every word begins with the same subword.
    dog, cat = (tokenizer.encode_source([text])[0][-1] for text in ("dog", "cat"))
    hund, katze, tier = (
        tokenizer.encode_target([text])[0][-1] for text in ("Hund", "Katze", "Tier")
    )
    pairs = [([dog], [hund]), ([dog], [hund]), ([dog], [tier]), ([cat], [katze])]
    first = frozenset({(0, 0)})
    links = [WordLinks(first, first)] * 4
    texts = [("dog", "Hund"), ("dog", "Hund"), ("dog", "Tier"), ("cat", "Katze")]
    counted = linked_lexicon(texts, pairs, links, tokenizer)
    lexicon = table(counted, tokenizer.target_vocab_size)
    expected = {(dog, hund): 2 / 3, (dog, tier): 1 / 3, (cat, katze): 1.0}
    assert lexicon == pytest.approx(expected)
