"""Minimum Bayes risk against brute force, and through the translator."""

import math
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from sacrebleu import sentence_bleu, sentence_chrf

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_translator
from transformer.common.errors import InputError
from transformer.decoding.mbr import bleu, chrf, minimum_bayes_risk, utility_named
from transformer.decoding.search.search import Hypothesis
from transformer.decoding.translator import Translation, Translator
from transformer.settings.decoding import SearchConfig

SOURCES = [source for source, _ in PAIRS] + ["", "dogs and cats ."]


def mbr_config(**changes: object) -> SearchConfig:
    fields: dict[str, object] = {"algorithm": "mbr", "beam_size": 1, "candidates": 8}
    return search_config(**(fields | changes))


def mbr_translator(batch_tokens: int = 200, max_length: int = 64, **changes: Any) -> Translator:
    return tiny_translator(batch_tokens, max_length=max_length, **asdict(mbr_config(**changes)))


def hypotheses(*log_probabilities: float) -> list[Hypothesis]:
    return [Hypothesis((4 + i,), value, value) for i, value in enumerate(log_probabilities)]


def test_a_text_has_the_summed_weight_of_its_candidates() -> None:
    # By equality alone, the most frequent text wins, and its score is how frequent it is.
    found = hypotheses(-1.0, -2.0, -3.0, -4.0)
    config = mbr_config(utility="operator:eq", nbest=3)
    best, *others = minimum_bayes_risk(found, ["rare", "often", "other", "often"], config)
    assert (best.tokens, best.score, best.log_probability) == ((5,), 0.5, -2.0)
    assert [(h.tokens, h.score) for h in others] == [((4,), 0.25), ((6,), 0.25)]
    found = hypotheses(math.log(0.4), math.log(0.3), math.log(0.3))
    config = mbr_config(utility="operator:eq", candidates_by="beam")
    [best] = minimum_bayes_risk(found, ["a", "b", "b"], config)
    assert (best.tokens, best.score) == ((5,), pytest.approx(0.6))


def expected_utilities(candidates: Translation, by_sampling: bool) -> dict[str, float]:
    """The expected chrF of each text, rounded, so that equals stay in the order of the search."""
    texts = [candidate.text for candidate in candidates.nbest]
    totals = torch.tensor([candidate.log_probability for candidate in candidates.nbest])
    mass = (0 * totals if by_sampling else totals).double().softmax(0).tolist()
    expected = {}
    for text in texts:
        scores = [sentence_chrf(text, [reference]).score for reference in texts]
        total = sum(weight * score for weight, score in zip(mass, scores, strict=True))
        expected[text] = round(total, 9)
    return expected


@pytest.mark.parametrize("candidates_by", ["sampling", "beam"])
def test_the_translator_ranks_as_brute_force_does(candidates_by: str) -> None:
    translator = mbr_translator(candidates_by=candidates_by, nbest=8)
    every = tiny_translator(200, **asdict(translator.search.candidate_search)).translate(SOURCES)
    for translation, candidates in zip(translator.translate(SOURCES), every, strict=True):
        if not translation.text:
            continue
        expected = expected_utilities(candidates, candidates_by == "sampling")
        ranked = sorted(expected, key=lambda text: -expected[text])
        assert [candidate.text for candidate in translation.nbest] == ranked
        scores = [candidate.score for candidate in translation.nbest]
        assert scores == pytest.approx([expected[text] for text in ranked], abs=1e-4)
        assert (translation.text, translation.score) == (ranked[0], scores[0])


def test_candidate_search_keeps_its_settings() -> None:
    assert mbr_config(candidates=32).width == 32
    assert mbr_config(top_k=3, epsilon=0.02).candidate_search.top_k == 3
    assert mbr_config(candidates_by="beam", length_penalty=1.0).candidate_search.beam_size == 8
    with pytest.raises(InputError, match="top_k=3 has no effect"):
        mbr_config(candidates_by="beam", top_k=3)
    with pytest.raises(InputError, match="candidates=8 is no multiple"):
        mbr_config(candidates_by="diverse", groups=3)


WORDS = ["ein", "eine", "Hund", "Hündin", "läuft", "läuft,", "(schnell)", ".", "a", "日本語"]


@pytest.mark.parametrize(("utility", "official"), [(chrf, sentence_chrf), (bleu, sentence_bleu)])
def test_utility_equals_sacrebleu_to_the_last_bit(utility: Any, official: Any) -> None:
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(12)]
    texts += ["", " ", "a", "ein ein ein ein ein", "Ein"]
    expected = [[official(h, [reference]).score for reference in texts] for h in texts]
    assert utility(texts).tolist() == expected


def longer_by(hypothesis: str, reference: str) -> int:
    return len(hypothesis) - len(reference)


def undefined(hypothesis: str, reference: str) -> float:
    return float("nan") if hypothesis == reference else 0.0


def test_a_utility_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The hypothesis comes first.
    values = utility_named(f"{__name__}:longer_by")(["abc", "a"])
    assert values.tolist() == [[0.0, 2.0], [-2.0, 0.0]]
    with pytest.raises(InputError, match="not finite"):
        utility_named(f"{__name__}:undefined")(["a", "b"])
    # What names no callable is not imported.
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_metric.py").write_text("raise SystemExit('imported')\n")
    for name in ("chrF", "no_such_module:metric", "math:no_such", "math:pi", "imported_metric"):
        with pytest.raises(InputError, match=f"^decoding.utility={name} cannot be imported "):
            mbr_translator(utility=name)
