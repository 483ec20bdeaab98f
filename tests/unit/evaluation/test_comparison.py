"""Comparisons of systems: buckets of sentences and words, sentences that changed, and output."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF

from tests.helpers.decoding.metrics import RAW
from transformer.common.errors import InputError
from transformer.evaluation.comparison import (
    ComparedText,
    Movement,
    SentenceScores,
    System,
    WordMatch,
    bucket_labels,
    check_metrics,
    compare_systems,
    movement,
    scores_by_length,
    word_signature,
    words_by,
    words_by_frequency,
)
from transformer.reports.comparison import format_comparison, save_comparison
from transformer.settings.evaluation import ComparisonKeys

REFERENCES = ["ein Hund | schläft [heute]", "zwei Katzen laufen `schnell`", "drei <Vögel> singen"]
SOURCE = ["a dog", "two cats run fast", "three birds sing"]
TEXT = ComparedText("validation", SOURCE, [(line,) for line in REFERENCES])
WORSE = ["ein Hund | schläft [nun]", "Katzen", "drei <Vögel> singen"]
SYSTEMS = [
    System("runs/[bold]a", WORSE, {"checkpoint": "a.ckpt"}),
    System("runs/b", REFERENCES, {"weights": "ema"}),
    System("runs/c", WORSE),
]
KEYS = ComparisonKeys(
    scores=("chrf", "bleu", "ter"),
    bootstrap=50,
    randomization=50,
    seed=1,
    lengths=(3, 4),
    frequencies=(1, 2),
    moved=1,
    moved_by="chrf",
)


def test_json_has_every_number_with_its_signature(tmp_path: Path) -> None:
    comparison = compare_systems(TEXT, SYSTEMS, KEYS, RAW, ["ein Hund", "ein Haus"])
    values = json.loads(format_comparison(comparison))
    assert (values["text"], values["sentences"]) == ("validation", 3)
    assert values["systems"][0] == {"name": "runs/[bold]a", "checkpoint": "a.ckpt"}
    assert [metric["name"] for metric in values["metrics"]] == ["chrF2", "BLEU", "TER"]
    assert values["metrics"][1]["systems"][1]["score"] == pytest.approx(100)
    assert values["metrics"][1]["systems"][2]["p_bootstrap"] == 1.0
    lengths = [(b["label"], b["sentences"]) for b in values["by_length"]["buckets"]]
    assert lengths == [("0-2", 1), ("3", 1), ("4+", 1)]
    # Once: Hund. Twice: ein.
    words = [(b["label"], b["words"]) for b in values["by_frequency"]["buckets"]]
    assert words[1:] == [("1", 1), ("2+", 1)]
    better, same = values["moved"]
    assert (better["system"], better["better"], better["same"]) == ("runs/b", 2, 1)
    assert better["most_better"][0]["line"] == 2
    assert (same["system"], same["same"], same["most_better"]) == ("runs/c", 3, [])
    save_comparison(tmp_path, comparison)
    assert json.loads((tmp_path / "comparison.json").read_text()) == values


def test_wrong_keys_are_named() -> None:
    with pytest.raises(InputError, match="each once"):
        check_metrics(replace(KEYS, scores=("bleu", "bleu")), RAW)
    with pytest.raises(InputError, match=r"lengths=.*; also frequencies=\[0\]"):
        check_metrics(replace(KEYS, lengths=(3, 3), frequencies=(0,)), RAW)


def test_labels_and_words_of_buckets() -> None:
    assert bucket_labels([1, 2, 5, 1000]) == ["0", "1", "2-4", "5-999", "1000+"]
    assert words_by(BLEU(lowercase=True))("Ein Hund. ") == ["ein", "hund", "."]
    assert words_by(BLEU(tokenize="char"))("Ja.") == ["J", "a", "."]
    bleu = BLEU(lowercase=True)
    bleu.corpus_score(["x"], [["x"]])
    assert word_signature(bleu).startswith("case:lc|tok:13a|version:")


def test_each_sentence_is_in_the_bucket_of_its_source() -> None:
    sources = ["a b c", "a b", "a b c d e", "", "a b c d"]
    lines = ["ein Hund und ein Ball", "zwei", "drei Vögel im Garten", "", "vier Äpfel da nun"]
    wrong = [line.upper() for line in lines]
    references = [(line,) for line in lines]
    found = scores_by_length(
        sources, [lines, wrong], references, BLEU(), [3, 5, 9], TEXT.word_count
    )
    assert [(b.label, b.sentences) for b in found] == [("0-2", 2), ("3-4", 2), ("5-8", 1)]
    # Two words and none have no 4-gram, so BLEU would be 0 even for correct hypotheses.
    assert found[0].scores is None
    for bucket in found[1:]:
        assert bucket.scores is not None
        assert bucket.scores[0] == pytest.approx(100.0)
        assert bucket.scores[1] < 20


def test_bleu_of_a_bucket_needs_a_reference_of_four_words() -> None:
    texts = ["x"], [["ein Hund schläft."]], [("ein Hund schläft.",)]
    [bucket] = scores_by_length(*texts, BLEU(), [], TEXT.word_count)
    assert bucket.scores == (pytest.approx(100.0),)
    [by_spaces] = scores_by_length(*texts, BLEU(tokenize="none"), [], TEXT.word_count)
    assert by_spaces.scores is None


def test_lines_between_documents_and_features_are_no_words_and_no_sentences() -> None:
    sources = ["a dog runs\tDET;NOUN", "", "a\tDET"]
    text = ComparedText("t", sources, [("ein",), ("",), ("ein",)], features=True)
    keys = replace(KEYS, scores=("exact_match",), moved_by="exact_match")
    systems = [System(name, ["ein", "", name]) for name in ("zwei", "ein")]
    values = compare_systems(text, systems, keys, RAW).to_json()
    assert values["sentences"] == 2
    [exact] = values["metrics"]
    assert [system["score"] for system in exact["systems"]] == [50.0, 100.0]
    lengths = [(b["label"], b["sentences"]) for b in values["by_length"]["buckets"]]
    assert lengths == [("0-2", 1), ("3", 1)]
    [moved] = values["moved"]
    assert moved["most_better"][0]["line"] == 3
    assert (moved["better"], moved["worse"], moved["same"]) == (1, 0, 1)


def test_words_are_counted_as_by_hand() -> None:
    counts = {"the": 10, "dog": 3, "cat": 1}
    references = [["the", "dog", "the", "zebra"], ["the", "cat"]]
    # "the" once of twice, "dog" twice for once, "cat" without one in the reference.
    first = [["the", "dog", "dog", "cat"], ["the", "cat"]]
    second: list[list[str]] = [[], ["zebra"]]
    never, once, few, often = words_by_frequency(counts, [first, second], references, [1, 2, 5])
    sizes = [(b.label, b.words) for b in (never, once, few, often)]
    assert sizes == [("0", 1), ("1", 1), ("2-4", 1), ("5+", 3)]
    assert never.matches == (WordMatch(0.0, 0.0, 0.0), WordMatch(0.0, 0.0, 0.0))
    assert once.matches[0] == WordMatch(100.0, 50.0, 200 / 3)
    assert few.matches[0] == WordMatch(100.0, 50.0, 200 / 3)
    assert often.matches[0] == WordMatch(200 / 3, 100.0, 80.0)
    assert often.matches[1] == WordMatch(0.0, 0.0, 0.0)
    # A word of another sentence does not count.
    [found] = words_by_frequency({}, [[["b"], ["a"]]], [["a"], ["b"]], [])
    assert found.matches == (WordMatch(0.0, 0.0, 0.0),)


TARGETS = ["ein Hund schläft heute", "zwei Katzen", "drei Vögel singen", "vier Häuser", "fünf"]
BASE = ["ein", "zwei Katzen", "drei Vögel singen", "vier Häuser", "nichts"]
OTHER = ["ein Hund schläft heute", "zwei", "drei Vögel singen", "wer", "fünfe"]
SOURCES = ["1", "2", "3", "4", "5"]


def sentence_scores(hypotheses: list[str]) -> SentenceScores:
    return SentenceScores(hypotheses, TARGETS, ("bleu", "chrf"), RAW)


def moved(by: str, limit: int) -> Movement:
    text = ComparedText("t", SOURCES, [(target,) for target in TARGETS])
    scores = sentence_scores(BASE), sentence_scores(OTHER)
    return movement(text, *scores, range(5), by=by, better="higher", limit=limit)


def test_the_largest_change_is_first() -> None:
    found = moved("chrf", 5)
    assert (found.better, found.worse, found.same) == (2, 2, 1)
    assert [s.line for s in found.most_better] == [1, 5]
    assert [s.line for s in found.most_worse] == [4, 2]
    # "fünfe" for "fünf" has common letters (chrF), and no correct word (BLEU).
    found = moved("bleu", 5)
    assert [sentence.line for sentence in found.most_better] == [1]
    assert found.same == 2
    # Of equal changes the first comes first.
    base, other = (SentenceScores([word] * 3, ["a"] * 3, ("chrf",), RAW) for word in "xa")
    text = ComparedText("t", ["s"] * 3, [("a",)] * 3)
    equal = movement(text, base, other, range(3), by="chrf", better="higher", limit=2)
    assert [sentence.line for sentence in equal.most_better] == [1, 2]
    assert (equal.better, equal.most_worse) == (3, [])


def test_a_sentence_has_its_texts_and_scores() -> None:
    [first] = moved("chrf", 1).most_better
    assert (first.source, first.reference) == ("1", TARGETS[0])
    assert first.hypotheses == ("ein", TARGETS[0])
    chrf, bleu = CHRF(), BLEU(effective_order=True)
    for index, line in enumerate(first.hypotheses):
        assert first.scores["chrf"][index] == chrf.sentence_score(line, [TARGETS[0]]).score
        assert first.scores["bleu"][index] == bleu.sentence_score(line, [TARGETS[0]]).score
    assert sentence_scores(BASE).signatures["bleu"] == str(bleu.get_signature())
