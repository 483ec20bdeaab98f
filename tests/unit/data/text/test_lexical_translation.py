"""Lexical translation probabilities: Model 1 as its formula says, and links as they are counted."""

from collections import defaultdict

import numpy as np
import pytest

from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer
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


@pytest.mark.parametrize("iterations", [1, 2, 7])
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


def test_links_of_words_are_counted_for_their_subwords() -> None:
    tokenizer = tiny_tokenizer()
    [(source, target), other] = tokenizer.encode_pairs(PAIRS[:2])
    # "dog" is "hund"; "runs" is only perhaps "läuft", and the second pair has no links.
    nothing = WordLinks(frozenset(), frozenset())
    links = [WordLinks(frozenset({(1, 1)}), frozenset({(1, 1), (2, 2)})), nothing]
    lexicon = table(
        linked_lexicon([(source, target), other], links, tokenizer), tokenizer.target_vocab_size
    )
    sides = {s for s, _ in lexicon}, {t for _, t in lexicon}
    left, right = (
        tokenizer.source_subwords([i for i in row if i in side])
        for row, side in zip((source, target), sides, strict=True)
    )
    assert ("".join(left).strip("▁"), "".join(right).strip("▁")) == ("dog", "hund")
    for subword in sides[0]:
        assert sum(p for (s, _), p in lexicon.items() if s == subword) == pytest.approx(1)
