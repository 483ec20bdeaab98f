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
from transformer.decoding.search.beam import beam_search
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


MUSTS = [["a"], ["ab"], ["b"], ["a a"], ["."], ["a", "."], ["b", "ab"], ["a", "a a"], ["ba"]]


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


def test_proposals_and_progress_within_a_phrase() -> None:
    must = MustPhrases.compile([[CUTS["ba"], CUTS["ab"]]], VOCABULARY, torch.device("cpu"))
    # "a" where the tokenizer has "ab", then "b"; "ba" has not begun.
    must = must.proceed(torch.tensor([[0]]), torch.tensor([[6]]))
    assert must.proposals[must.states].tolist() == [[[7, 5]]]
    assert int(must.banks) == 1
    must = must.proceed(torch.tensor([[0]]), torch.tensor([[5]]))
    assert must.proposals[must.states].tolist() == [[[7, -1]]]
    assert int(must.banks) == 2
    # Phrases that begin alike: each piece counts once, and the beam of one goes on to both ends.
    cuts = [[CUTS[phrase] for phrase in ("b", "ba", "ab")]]
    must = MustPhrases.compile(cuts, VOCABULARY, torch.device("cpu"))
    banks = []
    for subword in (7, 5, 4, 7, 5, 7, 8):  # " ba b ab"
        must = must.proceed(torch.tensor([[0]]), torch.tensor([[subword]]))
        banks.append(int(must.banks))
    assert banks == [1, 2, 3, 4, 5, 6, 7]
    assert bool(must.met)


def test_the_batch_does_not_change_a_result() -> None:
    seeds = list(range(len(MUSTS)))
    together = found_by(seeds, MUSTS, 3, nbest=3, length_penalty=1.0)
    assert len({tuple(h.tokens) for [h, *_] in together}) > 4
    for seed, phrases, hypotheses in zip(seeds, MUSTS, together, strict=True):
        [alone] = found_by([seed], [phrases], 3, nbest=3, length_penalty=1.0)
        assert [h.tokens for h in alone] == [h.tokens for h in hypotheses]
        assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], abs=1e-5)


def test_phrases_of_the_free_search_change_nothing() -> None:
    seeds = list(range(30))
    config = search_config(beam_size=300)
    plain = beam_search(RecurrentStep(seeds, 300, len(PIECES)), torch.full((30,), LIMIT), config)
    phrases = [[p for p in CUTS if occurs(p, batch_text(h.tokens))] for [h] in plain]
    assert sum(map(bool, phrases)) > 5
    found = found_by(seeds, phrases, 300)
    assert [h.tokens for [h] in found] == [h.tokens for [h] in plain]


def test_a_prefix_comes_before_the_phrases() -> None:
    [[hypothesis]] = found_by(SEEDS[:1], [["ab"]], 300, forced=[4, 5, 7])
    _, row = max(
        (total, row) for row, total in every_hypothesis(SEEDS[0]).items() if row[:3] == (4, 5, 7)
    )
    assert hypothesis.tokens == row


def test_the_nbest_list_has_the_phrases_unless_there_is_no_room() -> None:
    [hypotheses] = found_by(SEEDS[:1], [["ab"]], 6, nbest=6, length_penalty=1.0)
    assert len({h.tokens for h in hypotheses}) == len(hypotheses) > 2
    assert all(occurs("ab", batch_text(h.tokens)) for h in hypotheses)
    scores = [h.score for h in hypotheses]
    assert scores == sorted(scores, reverse=True)
    [[hypothesis]] = found_by(SEEDS[:1], [["a a", "ba", "ab"]], 4)
    text = batch_text(hypothesis.tokens)
    assert len(hypothesis.tokens) == LIMIT
    assert 1 <= sum(occurs(p, text) for p in ("a a", "ba", "ab")) < 3
    assert -100 < hypothesis.log_probability < 0


def test_a_full_beam_ends_the_search_with_stopping_full() -> None:
    calls = {}
    for stopping in ("exact", "full"):
        must = MustPhrases.compile([[CUTS["a"]]], VOCABULARY, torch.device("cpu"))
        step = RecurrentStep(SEEDS[:1], int(must.widths(3).max()), len(PIECES))
        # So large a penalty that a longer hypothesis could still be better.
        config = search_config(beam_size=3, length_penalty=3.0, stopping=stopping)
        [[hypothesis]] = allocated_search(step, torch.tensor([60]), config, must)
        assert occurs("a", batch_text(hypothesis.tokens))
        calls[stopping] = step.calls
    assert calls["full"] < calls["exact"]


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
    for text, constraints, translation in zip(TEXTS, asked, found, strict=True):
        assert translator.translate([text], [constraints])[0].text == translation.text
    # A long text after the phrase of a script without spaces.
    translator = tiny_translator(max_length_ratio=2.0)
    [translation] = translator.translate(TEXTS[:1], [Constraints(must=("猫",))])
    assert translation.unmet == ()


@pytest.mark.parametrize("algorithm", ["greedy", "diverse", "sampling"])
def test_other_searches_refuse(algorithm: str) -> None:
    changes = {"beam_size": 1} if algorithm == "greedy" else {}
    translator = tiny_translator(algorithm=algorithm, **changes)
    with pytest.raises(InputError, match=f"algorithm={algorithm} .* set decoding=beam"):
        translator.translate(TEXTS[:2], [None, Constraints(must=("hund",))])
