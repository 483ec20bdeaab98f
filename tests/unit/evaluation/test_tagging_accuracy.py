"""Tags compared by hand."""

import io

import pytest
from rich.console import Console

from transformer.evaluation.tagging_accuracy import compare_tags
from transformer.report.scores import confusion_table

WORDS = [["the", "dog", "runs"], ["a", "run"], ["the", "cat", "runs", "."]]
RIGHT = [["DET", "NOUN", "VERB"], ["DET", "NOUN"], ["DET", "NOUN", "NOUN", "PUNCT"]]
GIVEN = [["DET", "NOUN", "VERB"], ["DET", "VERB"], ["DET", "DET", "NOUN", "PUNCT"]]
TRAINING = {"the", "dog", "runs", "run", ".", "a", "man"}


def test_scores_by_hand() -> None:
    compared = compare_tags(WORDS, RIGHT, GIVEN, TRAINING)
    scores = {score.name: score for score in compared.scores()}
    assert scores["accuracy"].value == pytest.approx(100 * 7 / 9)
    assert scores["accuracy"].signature == "words:9|unknown:1|tagged-at:first-subword"
    # "cat" alone is unknown, and was not taken for a noun.
    assert (scores["accuracy_unknown"].value, compared.unknown) == (0.0, 1)
    noun = scores["f1_NOUN"].to_json()
    assert (noun["precision"], noun["recall"]) == (100.0, 50.0)
    assert noun["score"] == pytest.approx(100 * 2 * 0.5 / 1.5, abs=0.01)
    assert scores["f1_VERB"].to_json()["precision"] == 50.0
    assert scores["f1_VERB"].to_json()["recall"] == 100.0
    confusion = scores["confusion"].to_json()
    assert confusion["score"] == 2
    assert confusion["right"]["NOUN"] == {"DET": 1, "NOUN": 2, "VERB": 1}
    assert list(scores)[-1] == "confusion"


def test_a_tag_never_right_and_words_without_tags() -> None:
    compared = compare_tags([["x"]], [["ADJ"]], [["ADV"]], TRAINING)
    for score in compared.scores():
        if score.name.startswith("f1_"):
            assert score.value == 0.0
    # Without unknown words there is no score of them.
    compared = compare_tags([["the"]], [["DET"]], [["DET"]], TRAINING)
    assert "accuracy_unknown" not in {score.name for score in compared.scores()}
    with pytest.raises(ValueError, match="shorter"):
        compare_tags(WORDS, RIGHT, [*GIVEN[:-1], ["DET"]], TRAINING)


def test_the_table_has_a_row_for_each_right_tag_as_text() -> None:
    screen = io.StringIO()
    table = confusion_table(compare_tags(WORDS, RIGHT, GIVEN, TRAINING))
    Console(file=screen, width=100).print(table)
    rows = [line.split() for line in screen.getvalue().splitlines()[-5:]]
    assert rows[0] == ["DET", "NOUN", "PUNCT", "VERB"]
    assert rows[2] == ["NOUN", "1", "2", ".", "1"]
    table = confusion_table(compare_tags([["x"]], [["[red]"]], [["a\x1b[2J"]], TRAINING))
    Console(file=screen, width=100).print(table)
    assert "[red]" in screen.getvalue() and "a⟨U+001B⟩[2J" in screen.getvalue()
