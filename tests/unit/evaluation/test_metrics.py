"""BLEU, chrF and TER are sacreBLEU's; term accuracy, tags and alignment errors by hand."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from tests.helpers.decoding.metrics import RAW
from transformer.common.errors import InputError
from transformer.data.text.phrases import read_phrases
from transformer.data.text.word_alignment import Links
from transformer.evaluation.alignment_error import count_links
from transformer.evaluation.metrics import score, term_accuracy
from transformer.evaluation.tagging_accuracy import tag_scores
from transformer.reports.scores import format_json
from transformer.settings.metrics import MetricsConfig

HYPOTHESES = ["Der Hund schläft heute.", "Zwei Katzen liefen schnell.", "", "Ein Haus, groß."]
REFERENCES = ["Der Hund schläft heute.", "Die zwei Katzen laufen.", "Nein.", "ein großes Haus."]


def sacrebleu_prints(folder: Path, *arguments: str) -> str:
    for name, lines in (("hyp", HYPOTHESES), ("ref", REFERENCES)):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(folder / "ref"), "-i", str(folder / "hyp")]
    done = subprocess.run([*command, *arguments], check=True, capture_output=True)
    return done.stdout.decode("utf-8")


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
    metrics = ("-m", "bleu", "chrf", "ter", "--format", "json", "--width", "2")
    printed = sacrebleu_prints(tmp_path, *metrics, *options)
    assert format_json(score(HYPOTHESES, REFERENCES, config=config)) + "\n" == printed


def test_metrics_keep_their_order_and_values_their_digits() -> None:
    scores = score(REFERENCES, REFERENCES, ("ter", "bleu"), config=RAW)
    assert [(s.name, s.value) for s in scores] == [("TER", 0.0), ("BLEU", pytest.approx(100.0))]
    [bleu] = score(HYPOTHESES, REFERENCES, ("bleu",), config=RAW)
    assert bleu.value != bleu.to_json()["score"]
    assert round(bleu.value, 2) == bleu.to_json()["score"]


def test_what_cannot_be_scored_is_an_input_error() -> None:
    for hypotheses, references in ((HYPOTHESES, REFERENCES[:3]), ([], [])):
        with pytest.raises(InputError, match=f"^{len(hypotheses)} hypotheses and"):
            score(hypotheses, references, config=RAW)
    with pytest.raises(InputError, match="metric meteor is unknown"):
        score(HYPOTHESES, REFERENCES, ("meteor",), config=RAW)
    with pytest.raises(InputError, match="tokenize=14a cannot be used"):
        MetricsConfig(tokenize="14a", lowercase=False)


def test_tokenizer_without_its_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> None:
        raise RuntimeError("Please install\nthe following: mecab")

    monkeypatch.setattr(BLEU, "TOKENIZERS", [*BLEU.TOKENIZERS, "gone"])
    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", lambda name: lacking)
    with pytest.raises(InputError, match=r"tokenize=gone cannot be used \(Please install the fol"):
        MetricsConfig(tokenize="gone", lowercase=False).bleu()


def test_tokenized_text_is_split_at_spaces() -> None:
    config = MetricsConfig(tokenize="none", lowercase=False)
    hypothesis = "ein mann , der &quot; ja &quot; sagt ."
    [bleu] = score([hypothesis], ["ein mann , der ja sagt ."], ("bleu",), config=config)
    assert bleu.to_json()["verbose_score"].startswith("77.8/")  # 7 of 9 words
    assert "|tok:none|" in bleu.signature


def test_term_accuracy_is_the_percentage_of_terms_that_occur_as_words() -> None:
    hypotheses = ["Der Hund läuft.", "Die Hunde laufen.", "Nichts."]
    terms = [("Hund", "Katze"), ("Hund", "laufen"), ()]
    accuracy = term_accuracy(hypotheses, terms, "match:words")
    assert accuracy.value == 50
    assert accuracy.to_json() == {
        "name": "term accuracy",
        "score": 50.0,
        "signature": "nterms:4|match:words",
        "found": 2,
        "terms": 4,
    }


def test_terms_are_read_with_tabs_or_as_lists(tmp_path: Path) -> None:
    path = tmp_path / "terms"
    path.write_text('das Haus\tHund\n\n["[1]", "a\\tb"]\n[]\nHund\t \n')
    expected = [("das Haus", "Hund"), (), ("[1]", "a\tb"), (), ("Hund",)]
    assert list(read_phrases(path)) == expected
    for broken in ("[1]", "[x", '["a", null]'):
        path.write_text(f"Hund\n{broken}\n")
        with pytest.raises(InputError, match=f"{path}:2: not a JSON list"):
            list(read_phrases(path))


WORDS = [["the", "dog", "runs"], ["a", "run"], ["the", "cat", "runs", "."]]
TAGS = [["DET", "NOUN", "VERB"], ["DET", "NOUN"], ["DET", "NOUN", "NOUN", "PUNCT"]]
PREDICTED = [["DET", "NOUN", "VERB"], ["DET", "VERB"], ["DET", "DET", "NOUN", "PUNCT"]]
TRAINING = {"the", "dog", "runs", "run", ".", "a", "man"}


def test_tag_scores_by_hand() -> None:
    scores = {score.name: score for score in tag_scores(WORDS, TAGS, PREDICTED, TRAINING)}
    names = ["accuracy", "accuracy_unknown", "f1_DET", "f1_NOUN", "f1_PUNCT", "f1_VERB"]
    assert list(scores) == names
    assert scores["accuracy"].value == pytest.approx(100 * 7 / 9)
    assert scores["accuracy"].signature == "words:9|unknown:1|tagged-at:first-subword"
    # "cat" alone is unknown, and has a wrong tag.
    unknown = scores["accuracy_unknown"]
    assert (unknown.value, unknown.signature) == (0.0, "words:1|not-in:train")
    noun = scores["f1_NOUN"].to_json()
    assert (noun["precision"], noun["recall"]) == (100.0, 50.0)
    assert noun["score"] == pytest.approx(100 * 2 * 0.5 / 1.5, abs=0.01)
    verb = scores["f1_VERB"].to_json()
    assert (verb["precision"], verb["recall"]) == (50.0, 100.0)


def test_tags_that_are_never_correct_and_no_unknown_words() -> None:
    scores = {score.name: score for score in tag_scores([["x"]], [["ADJ"]], [["ADV"]], TRAINING)}
    assert scores["f1_ADJ"].value == scores["f1_ADV"].value == 0.0
    known = tag_scores([["the"]], [["DET"]], [["DET"]], TRAINING)
    assert "accuracy_unknown" not in {score.name for score in known}
    with pytest.raises(ValueError, match="shorter"):
        tag_scores(WORDS, TAGS, [*PREDICTED[:-1], ["DET"]], TRAINING)


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
    scores = json.loads(format_json(counts.scores("npairs:1")))
    assert scores == [
        {"name": "AER", "score": round(error, 4), "signature": "npairs:1"},
        {"name": "alignment precision", "score": round(precision, 4), "signature": "npairs:1"},
        {"name": "alignment recall", "score": round(recall, 4), "signature": "npairs:1"},
    ]
