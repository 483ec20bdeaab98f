"""BLEU, chrF and TER are sacreBLEU's; term accuracy, tags and alignment errors by hand."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.helpers.decoding.metrics import RAW
from transformer.common.errors import InputError
from transformer.data.text.word_alignment import Links
from transformer.evaluation.alignment_error import count_links
from transformer.evaluation.metrics import score, term_accuracy
from transformer.evaluation.tagging_accuracy import tag_scores
from transformer.reports.scores import format_json
from transformer.settings.metrics import MetricsConfig

HYPOTHESES = ["Der Hund schläft heute.", "Zwei Katzen liefen schnell.", "", "Ein Haus, groß."]
REFERENCES = ["Der Hund schläft heute.", "Die zwei Katzen laufen.", "Nein.", "ein großes Haus."]


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (RAW, ()),
        (
            MetricsConfig(tokenize="char", lowercase=True),
            ("--tokenize", "char", "--lowercase", "--chrf-lowercase"),
        ),
    ],
)
def test_json_is_what_sacrebleu_prints(
    config: MetricsConfig, options: Sequence[str], tmp_path: Path
) -> None:
    for name, lines in (("hyp", HYPOTHESES), ("ref", REFERENCES)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "hyp", "-m", "bleu", "chrf", "ter"]
    command += ["--format", "json", "--width", "2", *options]
    printed = subprocess.check_output(command, cwd=tmp_path)
    scores = score(HYPOTHESES, REFERENCES, config=config)
    assert format_json(scores) + "\n" == printed.decode("utf-8")
    # The order is that of the call.
    scores = score(HYPOTHESES, REFERENCES, ("ter", "bleu"), config=config)
    assert [metric.name for metric in scores] == ["TER", "BLEU"]


def test_what_cannot_be_scored_is_an_input_error() -> None:
    with pytest.raises(InputError, match="4 hypotheses and 3"):
        score(HYPOTHESES, REFERENCES[:3], config=RAW)
    with pytest.raises(InputError, match="0 hypotheses and"):
        score([], [], config=RAW)
    with pytest.raises(InputError, match="metric meteor is unknown"):
        score(HYPOTHESES, REFERENCES, ("meteor",), config=RAW)
    with pytest.raises(InputError, match="tokenize=14a cannot be used"):
        MetricsConfig(tokenize="14a", lowercase=False)


def test_blank_lines_between_documents_do_not_count() -> None:
    hypotheses, references = ["a", "", ""], [("b",), ("",), ("",)]
    [known] = score(hypotheses, references, ("exact_match",), config=RAW, sources=["x", "", "y"])
    assert known.value == 50.0  # a source whose right output is blank counts
    [unknown] = score(hypotheses, references, ("exact_match",), config=RAW)
    assert unknown.value == pytest.approx(200 / 3)
    [added] = score(["b", "c"], [("b",), ("",)], ("exact_match",), config=RAW, sources=["x", ""])
    assert added.value == 50.0  # what a system adds there is wrong
    [blank] = score(["", ""], ["", ""], ("exact_match",), config=RAW, sources=["", " "])
    assert blank.value == 100.0


def test_term_accuracy_is_the_percentage_of_terms_that_occur_as_words() -> None:
    hypotheses = ["Der Hund läuft.", "Die Hunde laufen.", "Nichts."]
    terms = [("Hund", "Katze"), ("Hund", "laufen"), ()]
    accuracy = term_accuracy(hypotheses, terms, "match:words")
    assert (accuracy.value, accuracy.signature) == (50, "nterms:4|match:words")


WORDS = [["the", "dog", "runs"], ["a", "run"], ["the", "cat", "runs", "."]]
TAGS = [["DET", "NOUN", "VERB"], ["DET", "NOUN"], ["DET", "NOUN", "NOUN", "PUNCT"]]
PREDICTED = [["DET", "NOUN", "VERB"], ["DET", "VERB"], ["DET", "DET", "NOUN", "PUNCT"]]
TRAINING = {"the", "dog", "runs", "run", ".", "a", "man"}


def test_tag_scores_by_hand() -> None:
    scores = {score.name: score for score in tag_scores(WORDS, TAGS, PREDICTED, TRAINING)}
    assert scores["accuracy"].value == pytest.approx(100 * 7 / 9)
    assert scores["accuracy"].signature == "words:9|unknown:1|tagged-at:first-subword"
    # "cat" alone is unknown, and has a wrong tag.
    unknown = scores["accuracy_unknown"]
    assert (unknown.value, unknown.signature) == (0.0, "words:1|not-in:train")
    noun = scores["f1_NOUN"].to_json()
    assert (noun["precision"], noun["recall"]) == (100.0, 50.0)
    assert noun["score"] == pytest.approx(100 * 2 * 0.5 / 1.5, abs=0.01)


def test_tags_that_are_never_correct_and_no_unknown_words() -> None:
    scores = {score.name: score for score in tag_scores([["x"]], [["ADJ"]], [["ADV"]], TRAINING)}
    assert scores["f1_ADJ"].value == scores["f1_ADV"].value == 0.0
    known = tag_scores([["the"]], [["DET"]], [["DET"]], TRAINING)
    assert "accuracy_unknown" not in {score.name for score in known}


ALL: Links = frozenset({(0, 0), (1, 1), (2, 1)})
NONE: Links = frozenset()
# A = 4, S = 2, |A∩S| = 1, |A∩P| = 3: one of them sure, two only possible.
PROPOSED: Links = frozenset({(0, 0), (1, 0), (2, 0), (9, 9)})
PAIR = (PROPOSED, frozenset({(0, 0), (5, 5)}), frozenset({(1, 0), (2, 0), (7, 7)}))
ZERO: Links = frozenset({(0, 0)})
# Links are summed over the corpus first.
CORPUS = [(ZERO, ALL, ALL), (ALL, ALL, ALL), (NONE, ZERO, NONE), (frozenset({(0, 1)}), NONE, NONE)]


@pytest.mark.parametrize(
    ("pairs", "error", "precision", "recall"),
    [
        ([PAIR], 1 - (1 + 3) / (4 + 2), 3 / 4, 1 / 2),
        (CORPUS, 1 - 2 * 4 / (5 + 7), 4 / 5, 4 / 7),
        ([(NONE, ALL, ALL)], 1.0, 1.0, 0.0),
        ([(ALL, NONE, NONE)], 1.0, 0.0, 1.0),
        ([(NONE, NONE, NONE)], 0.0, 1.0, 1.0),
    ],
)
def test_alignment_error_rates_by_hand(
    pairs: list[tuple[Links, Links, Links]], error: float, precision: float, recall: float
) -> None:
    counts = count_links(pairs)
    rates = (counts.error_rate, counts.precision, counts.recall)
    assert rates == pytest.approx((error, precision, recall))
    scores = {score.name: score.value for score in counts.scores("npairs:1")}
    names = ["AER", "alignment precision", "alignment recall"]
    assert scores == dict(zip(names, rates, strict=True))
