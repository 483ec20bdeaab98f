"""Minimum Bayes risk against brute force, and through the translator."""

import math
import random
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from sacrebleu import sentence_bleu, sentence_chrf

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_translator
from transformer.common.errors import InputError
from transformer.decoding.long_inputs import split_segments
from transformer.decoding.mbr import bleu, chrf, minimum_bayes_risk, utility_named, weights
from transformer.decoding.search.search import Hypothesis
from transformer.settings.decoding import SearchConfig

SOURCES = [source for source, _ in PAIRS] + ["", "dogs and cats ."]


def mbr_config(**changes: object) -> SearchConfig:
    fields: dict[str, object] = {"algorithm": "mbr", "beam_size": 1, "candidates": 8}
    return search_config(**(fields | changes))


def translated(**changes: Any) -> list[Any]:
    batch_tokens = changes.pop("batch_tokens", 200)
    config = asdict(mbr_config(**changes))
    return tiny_translator(batch_tokens, **config).translate(SOURCES)


def hypotheses(*log_probabilities: float) -> list[Hypothesis]:
    return [Hypothesis((4 + i,), value, value) for i, value in enumerate(log_probabilities)]


def test_weights_of_candidates() -> None:
    found = hypotheses(math.log(0.3), math.log(0.1))
    assert weights(found, mbr_config()).tolist() == [0.5, 0.5]
    by_beam = weights(found, mbr_config(candidates_by="beam"))
    torch.testing.assert_close(by_beam, torch.tensor([0.75, 0.25], dtype=torch.float64))
    # By equality alone, the most frequent text wins, and its score is how frequent it is.
    found = hypotheses(-1.0, -2.0, -3.0, -4.0)
    config = mbr_config(utility="operator:eq", nbest=3)
    best, *rest = minimum_bayes_risk(found, ["rare", "often", "other", "often"], config)
    assert (best.tokens, best.score, best.log_probability) == ((5,), 0.5, -2.0)
    assert [(one.tokens, one.score) for one in rest] == [((4,), 0.25), ((6,), 0.25)]
    found = hypotheses(math.log(0.4), math.log(0.3), math.log(0.3))
    config = mbr_config(utility="operator:eq", candidates_by="beam")
    (best,) = minimum_bayes_risk(found, ["a", "b", "b"], config)
    assert (best.tokens, best.score) == ((5,), pytest.approx(0.6))
    # Equals stay in the order of the search.
    texts = ["ab", "cd", "ef", "gh", "ij", "kl", "mn"]
    found = hypotheses(*[-1.0] * len(texts))
    ranked = minimum_bayes_risk(found, texts, mbr_config(nbest=7))
    assert [one.tokens for one in ranked] == [one.tokens for one in found]


@pytest.mark.parametrize("candidates_by", ["sampling", "beam", "diverse"])
def test_the_translator_ranks_as_brute_force_does(candidates_by: str) -> None:
    groups = {"groups": 2, "diversity": 0.5} if candidates_by == "diverse" else {}
    config = mbr_config(candidates_by=candidates_by, nbest=8, **groups)
    every = asdict(config.candidate_search)
    candidates = tiny_translator(200, **every).translate(SOURCES)
    found = translated(candidates_by=candidates_by, nbest=8, **groups)
    for one, before in zip(found, candidates, strict=True):
        if not one.text:
            continue
        texts = [candidate.text for candidate in before.nbest]
        totals = torch.tensor([candidate.log_probability for candidate in before.nbest]).double()
        mass = totals.softmax(0) if candidates_by != "sampling" else torch.full((8,), 1 / 8)
        # Rounded, so that equals stay in the order of the search.
        expected = {
            text: round(
                sum(
                    float(m) * sentence_chrf(text, [other]).score
                    for m, other in zip(mass, texts, strict=True)
                ),
                9,
            )
            for text in texts
        }
        ranked = sorted(expected, key=lambda text: -expected[text])
        assert [candidate.text for candidate in one.nbest] == ranked
        scores = [candidate.score for candidate in one.nbest]
        assert scores == pytest.approx([expected[text] for text in ranked], abs=1e-4)
        assert (one.text, one.score) == (ranked[0], scores[0])


def test_the_seed_decides_and_not_the_batch() -> None:
    together = [one.text for one in translated()]
    assert [one.text for one in translated(batch_tokens=1)] == together
    assert [one.text for one in translated(seed=2)] != together


def test_a_long_text_scores_the_mean_of_its_segments() -> None:
    long = " ".join(source for source, _ in PAIRS * 2)
    translator = tiny_translator(200, **asdict(mbr_config()), max_length=40)
    whole = translator.translate([long])[0]
    subwords = translator.tokenizer.encode_source([long])[0]
    segments = split_segments(subwords, None, translator.tokenizer, translator.limits)
    assert len(segments) > 1
    scores = [best.score for best, *_ in translator.searcher(segments)]
    assert whole.score == pytest.approx(sum(scores) / len(scores))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"candidates": 1}, "decoding.candidates=1 leaves nothing to compare"),
        ({"nbest": 9}, "decoding.nbest=9 is more than decoding.candidates=8"),
        ({"candidates_by": "beam", "top_k": 3}, "decoding.top_k=3 has no effect"),
        ({"candidates_by": "diverse", "groups": 3}, "decoding.candidates=8 is no multiple of"),
        ({"algorithm": "beam"}, "decoding.candidates=8 has no effect with decoding.algorithm=beam"),
    ],
)
def test_what_would_do_nothing_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        mbr_config(**changes)


def test_candidate_search_keeps_its_settings() -> None:
    assert mbr_config(candidates=32).width == 32
    assert mbr_config(candidates=32, candidates_by="beam").width == 32
    assert mbr_config(coverage_penalty=0.2).candidate_search.coverage_penalty == 0
    assert mbr_config(top_k=3, epsilon=0.02).candidate_search.top_k == 3
    assert mbr_config(candidates_by="beam", length_penalty=1.0).candidate_search.beam_size == 8


WORDS = ["ein", "eine", "Hund", "Hündin", "läuft", "läuft,", "(schnell)", ".", "a", "日本語"]


def phrases(seed: int, count: int = 12) -> list[str]:
    """Phrases of up to nine words, a blank one and an empty one, some words twice."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(count)]
    return [*texts, "", " ", "a", "ein ein ein ein ein", "Ein"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("utility", "official"), [(chrf, sentence_chrf), (bleu, sentence_bleu)])
def test_utility_equals_sacrebleu_to_the_last_bit(utility: Any, official: Any, seed: int) -> None:
    texts = phrases(seed)
    wanted = [[official(one, [other]).score for other in texts] for one in texts]
    assert utility(texts).tolist() == wanted


def test_a_metric_by_its_import_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``operator:eq`` is 1 for the same text: the expected utility is the probability itself."""
    values = utility_named("operator:eq")(["a", "b"])
    assert torch.equal(values, torch.eye(2, dtype=torch.float64))
    # The hypothesis comes first.
    values = utility_named(f"{__name__}:longer_by")(["abc", "a"])
    assert values.tolist() == [[0.0, 2.0], [-2.0, 0.0]]
    with pytest.raises(InputError, match="gave a value that is not finite"):
        utility_named(f"{__name__}:undefined")(["a", "b"])
    # What names no callable is not imported.
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_metric.py").write_text("raise SystemExit('imported')\n")
    for name in ("imported_metric", "imported_metric:"):
        with pytest.raises(InputError, match=r"cannot be imported .*; choose chrf, bleu or MOD"):
            utility_named(name)


def longer_by(hypothesis: str, reference: str) -> int:
    return len(hypothesis) - len(reference)


def undefined(hypothesis: str, reference: str) -> float:
    return float("nan") if hypothesis == reference else 0.0


@pytest.mark.parametrize("name", ["chrF", "no_such_module:metric", "math:no_such_metric", ":x"])
def test_an_unknown_one_is_refused_before_any_text(name: str) -> None:
    with pytest.raises(InputError, match=f"^decoding.utility={name} cannot be imported "):
        tiny_translator(200, **asdict(mbr_config(utility=name)))
