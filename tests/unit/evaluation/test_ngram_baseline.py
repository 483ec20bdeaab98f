"""The n-gram model against the toolkit's, against a sum by hand, and against the sum to one."""

import math
from itertools import product

import pytest
from nltk.lm import KneserNeyInterpolated

from transformer.evaluation.ngram_baseline import KneserNey

BOS, EOS = 2, 3
TEXT = [[4, 5, 6], [4, 5, 4, 5, 7], [6, 4, 5], [5], [], [7, 4, 4, 6, 5, 4], [4, 5, 6]]


def model(order: int, **changes: object) -> KneserNey:
    arguments = {"order": order, "vocab_size": 6, "bos": BOS, "eos": EOS} | changes
    return KneserNey(TEXT, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [2, 3, 5])
def test_it_says_what_nltk_says(order: int) -> None:
    discount = 0.3
    # nltk leaves the unigrams as they are. It gets the n-grams that predict a token, no others.
    ours = model(order, discounts=[0.0] + [discount] * (order - 1))
    ngrams = [
        [
            tuple(map(str, padded[end - length : end]))
            for length in range(1, order + 1)
            for end in range(order, len(padded) + 1)
        ]
        for padded in ([BOS] * (order - 1) + text + [EOS] for text in TEXT)
    ]
    theirs = KneserNeyInterpolated(order, discount=discount)
    theirs.fit(ngrams, [str(token) for token in range(10)])
    compared = 0
    for context in product([BOS, 4, 5, 6, 7], repeat=order - 1):
        for token in (4, 5, 6, 7, EOS):
            expected = theirs.score(str(token), list(map(str, context)))
            assert ours.probability((*context, token)) == pytest.approx(expected, abs=1e-12)
            compared += 1
    assert compared >= 25


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_the_probabilities_after_any_context_sum_to_one(order: int) -> None:
    smoothed = model(order)
    for context in product([BOS, 4, 6, 8], repeat=order - 1):
        outcomes = [smoothed.probability((*context, token)) for token in (EOS, 4, 5, 6, 7, 8)]
        assert min(outcomes) > 0  # 8 was never seen
        assert sum(outcomes) == pytest.approx(1)


def test_unigrams_and_their_discount_by_hand() -> None:
    # 4: 8 times, 5: 7, 6: 4, 7: 2 and the end 7: 28 in all, of 5 kinds.
    assert model(1, discounts=[0.0]).probability((4,)) == 8 / 28
    quarter = model(1, discounts=[0.25])
    assert quarter.probability((7,)) == pytest.approx((2 - 0.25 + 0.25 * 5 / 6) / 28)
    assert quarter.probability((8,)) == pytest.approx(0.25 * 5 / 6 / 28)
    smoothed = KneserNey([[4, 4, 4, 5, 5, 6, 7]], order=1, vocab_size=9, bos=BOS, eos=EOS)
    # 6, 7 and the end were seen once, 5 twice.
    assert smoothed.discounts == [3 / (3 + 2 * 1)]
    assert model(1).discounts == [0.5]  # no token was seen once


def test_all_tokens_count_and_longer_contexts_help() -> None:
    smoothed = model(2)
    expected = [(BOS, 4), (4, 8), (8, EOS), (BOS, EOS)]
    total = -sum(math.log(smoothed.probability(ngram)) for ngram in expected)
    assert smoothed.nll([[4, 8], []]) == pytest.approx(total)
    # The impossible is infinite.
    assert model(1, discounts=[0.0]).nll([[8]]) == math.inf
    text = [[4, 5, 6, 7] * 5, [4, 6, 5, 7] * 5] * 3
    perplexities = [
        KneserNey(text, order=order, vocab_size=6, bos=BOS, eos=EOS).nll(text)
        for order in (1, 2, 3)
    ]
    assert perplexities[0] > perplexities[1] > perplexities[2]
