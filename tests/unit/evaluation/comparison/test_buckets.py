"""Sentences and words fall into the right buckets, and are counted as by hand."""

import pytest
from sacrebleu.metrics import BLEU

from transformer.evaluation.comparison import (
    WordMatch,
    bucket_labels,
    scores_by_length,
    word_signature,
    words_by,
    words_by_frequency,
)


def test_labels_and_words_of_buckets() -> None:
    assert bucket_labels([1, 2, 5, 1000]) == ["0", "1", "2-4", "5-999", "1000+"]
    assert bucket_labels([]) == ["0+"]
    words = words_by(BLEU(lowercase=True))
    assert words("Ein Hund, groß. ") == ["ein", "hund", ",", "groß", "."]
    assert words_by(BLEU(tokenize="char"))("Ja.") == ["J", "a", "."]
    bleu = BLEU(lowercase=True)
    bleu.corpus_score(["x"], [["x"]])
    assert word_signature(bleu).startswith("case:lc|tok:13a|version:")


def test_each_sentence_is_in_the_bucket_of_its_source() -> None:
    sources = ["a b c", "a b", "a b c d e", "", "a b c d"]
    lines = [
        "ein Hund und ein Ball",
        "zwei Katzen",
        "drei Vögel im Garten hier",
        "",
        "vier Äpfel da nun",
    ]
    wrong = [line.upper() for line in lines]
    found = scores_by_length(
        sources, [lines, wrong], [(line,) for line in lines], BLEU(), [3, 5, 9]
    )
    assert [(one.label, one.sentences) for one in found] == [("0-2", 2), ("3-4", 2), ("5-8", 1)]
    assert sum(one.sentences for one in found) == len(sources)
    # Two words and none have no 4-gram, so BLEU could not tell that they are right.
    short, *others = (one.scores for one in found)
    assert short is None
    for scores in others:
        assert scores is not None
        assert scores[0] == pytest.approx(100.0)
        assert scores[1] < 20


def test_bleu_of_a_bucket_needs_a_reference_of_four_words() -> None:
    lines = ["ein Hund", "ein Hund schläft."]
    [found] = scores_by_length(["x", "x"], [lines], [(line,) for line in lines], BLEU(), [])
    assert found.scores is not None and found.scores[0] == pytest.approx(100.0)
    [by_spaces] = scores_by_length(
        ["x", "x"], [lines], [(line,) for line in lines], BLEU(tokenize="none"), []
    )
    assert by_spaces.scores is None
    # One bucket has the BLEU of the whole.
    hypotheses, references = ["der Hund läuft heute schnell"], ["der Hund läuft heute langsam"]
    [whole] = scores_by_length(["x"], [hypotheses], [references], BLEU(), [])
    assert whole.scores == (BLEU().corpus_score(hypotheses, [references]).score,)


def test_words_are_counted_as_by_hand() -> None:
    counts = {"the": 10, "dog": 3, "cat": 1}
    references = [["the", "dog", "the", "zebra"], ["the", "cat"]]
    # "the" once of twice, "dog" twice where once is right, a cat where there is none.
    first = [["the", "dog", "dog", "cat"], ["the", "cat"]]
    second: list[list[str]] = [[], ["zebra"]]
    never, once, few, often = words_by_frequency(counts, [first, second], references, [1, 2, 5])
    assert [(b.label, b.words) for b in (never, once, few, often)] == [
        *(("0", 1), ("1", 1), ("2-4", 1), ("5+", 3))
    ]
    assert never.matches == (WordMatch(0.0, 0.0, 0.0), WordMatch(0.0, 0.0, 0.0))
    assert once.matches[0] == WordMatch(100.0, 50.0, 200 / 3)
    assert few.matches[0] == WordMatch(100.0, 50.0, 200 / 3)
    assert often.matches[0] == WordMatch(200 / 3, 100.0, 80.0)
    assert often.matches[1] == WordMatch(0.0, 0.0, 0.0)
    # A word of another sentence does not count.
    [found] = words_by_frequency({}, [[["b"], ["a"]]], [["a"], ["b"]], [])
    assert found.matches == (WordMatch(0.0, 0.0, 0.0),)
