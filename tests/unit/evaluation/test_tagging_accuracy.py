"""Tags compared by hand."""

import pytest

from transformer.evaluation.tagging_accuracy import tag_scores

WORDS = [["the", "dog", "runs"], ["a", "run"], ["the", "cat", "runs", "."]]
RIGHT = [["DET", "NOUN", "VERB"], ["DET", "NOUN"], ["DET", "NOUN", "NOUN", "PUNCT"]]
GIVEN = [["DET", "NOUN", "VERB"], ["DET", "VERB"], ["DET", "DET", "NOUN", "PUNCT"]]
TRAINING = {"the", "dog", "runs", "run", ".", "a", "man"}


def test_scores_by_hand() -> None:
    scores = {score.name: score for score in tag_scores(WORDS, RIGHT, GIVEN, TRAINING)}
    assert scores["accuracy"].value == pytest.approx(100 * 7 / 9)
    assert scores["accuracy"].signature == "words:9|unknown:1|tagged-at:first-subword"
    # "cat" alone is unknown, and was not taken for a noun.
    unknown = scores["accuracy_unknown"]
    assert (unknown.value, unknown.signature) == (0.0, "words:1|not-in:train")
    noun = scores["f1_NOUN"].to_json()
    assert (noun["precision"], noun["recall"]) == (100.0, 50.0)
    assert noun["score"] == pytest.approx(100 * 2 * 0.5 / 1.5, abs=0.01)
    assert scores["f1_VERB"].to_json()["precision"] == 50.0
    assert scores["f1_VERB"].to_json()["recall"] == 100.0
    tags = ["DET", "NOUN", "PUNCT", "VERB"]
    assert list(scores) == ["accuracy", "accuracy_unknown", *(f"f1_{tag}" for tag in tags)]


def test_a_tag_never_right_and_words_without_tags() -> None:
    scores = {score.name: score for score in tag_scores([["x"]], [["ADJ"]], [["ADV"]], TRAINING)}
    assert scores["f1_ADJ"].value == scores["f1_ADV"].value == 0.0
    # Without unknown words there is no score of them.
    known = tag_scores([["the"]], [["DET"]], [["DET"]], TRAINING)
    assert "accuracy_unknown" not in {score.name for score in known}
    with pytest.raises(ValueError, match="shorter"):
        tag_scores(WORDS, RIGHT, [*GIVEN[:-1], ["DET"]], TRAINING)
