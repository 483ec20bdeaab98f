"""Searches for translations with required phrases, against brute force over all texts."""

import pytest
import torch

from tests.helpers.decoding.steps import RecurrentStep, search_config
from tests.helpers.decoding.tiny_language import (
    LIMIT,
    PIECES,
    SEEDS,
    batch_text,
    best,
    every_hypothesis,
    tiny_vocabulary,
)
from tests.helpers.decoding.translators import PAIRS, tiny_translator
from transformer.common.errors import InputError
from transformer.data.text.phrases import occurs
from transformer.decoding.constraints.compile import CompiledConstraints, ConstrainedStep
from transformer.decoding.constraints.dynamic_beam_allocation import (
    Cut,
    MustPhrases,
    allocated_search,
)
from transformer.decoding.constraints.phrase_automaton import spell
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search.search import Hypothesis

VOCABULARY = tiny_vocabulary()
CUTS: dict[str, Cut] = {
    "a": ([6], [spell("a")]),
    "ab": ([7, 8], [spell("ab")]),
    "b": ([7, 5], [spell("b")]),
    "a a": ([6, 6], [spell("a a")]),
    ".": ([9], [spell(".")]),
    "ba": ([7, 5, 4], [spell("ba")]),
}


def found_by(
    seeds: list[int],
    phrases: list[list[str]],
    beam: int,
    forced: list[int] | None = None,
    limit: int = LIMIT,
    **changes: object,
) -> list[list[Hypothesis]]:
    """Search with the phrases of each sentence, ``beam`` wide."""
    cuts = [[CUTS[phrase] for phrase in row] for row in phrases]
    must = MustPhrases.compile(cuts, VOCABULARY, torch.device("cpu"))
    limits = torch.full((len(seeds),), limit)
    width = int(must.widths(beam).max())
    step = RecurrentStep(seeds, width, len(PIECES))
    if forced is not None:
        begun = CompiledConstraints(torch.tensor([forced]), None, None, None)
        step = ConstrainedStep(step, begun, limits, width)  # type: ignore[assignment]
    config = search_config(beam_size=beam, **changes)
    return allocated_search(step, limits, config, must)


MUSTS = [["a"], ["b"], ["a a"], ["a", "."], ["b", "ab"], ["a", "a a"], ["ba"]]


@pytest.mark.parametrize("phrases", MUSTS)
def test_an_unlimited_beam_finds_the_best_text_with_the_phrases(phrases: list[str]) -> None:
    found = found_by(SEEDS, [phrases] * 3, 2000)
    for seed, [hypothesis] in zip(SEEDS, found, strict=True):
        total, row = best(seed, lambda text: all(occurs(p, text) for p in phrases))
        assert hypothesis.tokens == row
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("phrases", MUSTS)
def test_a_small_beam_finds_all_phrases(phrases: list[str], beam: int) -> None:
    for [hypothesis] in found_by([*SEEDS, 11, 12], [phrases] * 5, beam, limit=9):
        text = batch_text(hypothesis.tokens)
        assert all(occurs(phrase, text) for phrase in phrases), text


def test_the_batch_does_not_change_a_result() -> None:
    seeds = list(range(len(MUSTS)))
    together = found_by(seeds, MUSTS, 3, nbest=3, length_penalty=1.0)
    assert len({tuple(h.tokens) for [h, *_] in together}) > 4
    for seed, phrases, hypotheses in zip(seeds, MUSTS, together, strict=True):
        [alone] = found_by([seed], [phrases], 3, nbest=3, length_penalty=1.0)
        assert [h.tokens for h in alone] == [h.tokens for h in hypotheses]
        assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], abs=1e-5)


def test_a_prefix_comes_before_the_phrases() -> None:
    [[hypothesis]] = found_by(SEEDS[:1], [["ab"]], 300, forced=[4, 5, 7])
    totals = every_hypothesis(SEEDS[0])
    assert hypothesis.tokens == max((r for r in totals if r[:3] == (4, 5, 7)), key=totals.get)


def test_the_nbest_list_has_the_phrases_unless_there_is_no_room() -> None:
    [hypotheses] = found_by(SEEDS[:1], [["ab"]], 6, nbest=6, length_penalty=1.0)
    assert len({h.tokens for h in hypotheses}) == len(hypotheses) > 2
    assert all(occurs("ab", batch_text(h.tokens)) for h in hypotheses)
    assert hypotheses == sorted(hypotheses, key=lambda h: -h.score)
    [[hypothesis]] = found_by(SEEDS[:1], [["a a", "ba", "ab"]], 4)
    met = [phrase for phrase in CUTS if occurs(phrase, batch_text(hypothesis.tokens))]
    assert {"a a", "ba", "ab"} & set(met) and len(hypothesis.tokens) == LIMIT


TEXTS = [source for source, _ in PAIRS]


def test_required_phrases_change_no_other_translation() -> None:
    translator = tiny_translator(max_length_ratio=1.0)
    plain = translator.translate(TEXTS)
    asked = [
        Constraints(must=("hund", "ein kind")),
        None,
        Constraints("zwei ka", ("schlafen", "buch"), ("katze",)),
        Constraints(must=("läuft .",)),
    ]
    found = translator.translate(TEXTS, asked)
    assert [t.unmet for t in found] == [(), None, (), ()]
    assert found[1].text == plain[1].text
    # A long text after the phrase of a script without spaces.
    translator = tiny_translator(max_length_ratio=2.0)
    [translation] = translator.translate(TEXTS[:1], [Constraints(must=("猫",))])
    assert translation.unmet == ()


def test_other_searches_refuse() -> None:
    translator = tiny_translator(algorithm="diverse")
    with pytest.raises(InputError, match="algorithm=diverse"):
        translator.translate(TEXTS[:2], [None, Constraints(must=("hund",))])
