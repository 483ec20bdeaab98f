"""Beam search and diverse beam search against a plain search of lists, without cache or bound."""

import math

import pytest
import torch
from torch import Tensor

from tests.helpers.decoding.steps import RecurrentStep, search_config
from transformer.decoding.search import beam
from transformer.decoding.search.beam import BLOCK, beam_search, largest
from transformer.decoding.search.diverse_beam import Groups, diverse_search
from transformer.decoding.search.greedy import first_largest
from transformer.decoding.search.search import Hypothesis, Sentences
from transformer.settings.decoding import SearchConfig, length_penalty
from transformer.settings.tokenizer import BOS, EOS

SEEDS = list(range(12))


class TableStep:
    """The same log-probabilities for every hypothesis, a row a step; the last one stays."""

    def __init__(self, *table: list[float]) -> None:
        self.table = torch.tensor(table)
        self.calls = 0

    def __call__(self, tokens: Tensor) -> Tensor:
        values = self.table[min(self.calls, len(self.table) - 1)]
        self.calls += 1
        return values.repeat(*tokens.shape, 1)

    def reorder(self, beams: Tensor) -> None: ...

    def keep(self, sentences: Tensor) -> None: ...


def next_tokens(seed: int, tokens: list[int]) -> list[float]:
    """Log-probabilities after these tokens, computed from the beginning."""
    step = RecurrentStep([seed], 1)
    for token in [BOS, *tokens]:
        values = step(torch.tensor([[token]]))
    return values.flatten().tolist()


def plain_beam_search(seed: int, limit: int, config: SearchConfig) -> list[Hypothesis]:
    """One sentence, until ``beam_size`` hypotheses ended or all reached the limit.

    It stops on no bound, so that it shows whether the bound loses anything.
    """
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[Hypothesis] = []
    for length in range(limit + 1):
        candidates = []
        for total, tokens in live:
            values = next_tokens(seed, tokens)
            allowed = [EOS] if length == limit else [1, EOS, 4, 5, 6]
            if EOS in allowed and length < min(config.min_length, limit):
                allowed.remove(EOS)
            candidates += [(total + values[token], [*tokens, token]) for token in allowed]
        candidates.sort(key=lambda candidate: -candidate[0])
        penalty = length_penalty(length + 1, config.length_penalty)
        ended += [
            Hypothesis(tuple(tokens[:-1]), total / penalty, total)
            for total, tokens in candidates[: config.beam_size]
            if tokens[-1] == EOS
        ]
        if len(ended) >= config.beam_size:
            break
        live = [item for item in candidates if item[1][-1] != EOS][: config.beam_size]
    return sorted(ended, key=lambda hypothesis: -hypothesis.score)[: config.nbest]


@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.6, 1.5])
@pytest.mark.parametrize("nbest", [1, 3])
@pytest.mark.parametrize("min_length", [0, 2])
def test_equals_the_plain_search(alpha: float, nbest: int, min_length: int) -> None:
    config = search_config(length_penalty=alpha, nbest=nbest, min_length=min_length)
    limits = [1 + seed % 7 for seed in SEEDS]
    found = beam_search(RecurrentStep(SEEDS, 3), torch.tensor(limits), config)
    for seed, limit, hypotheses in zip(SEEDS, limits, found, strict=True):
        expected = plain_beam_search(seed, limit, config)
        assert [h.tokens for h in hypotheses] == [h.tokens for h in expected]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected], abs=1e-4)
        totals = [h.log_probability for h in expected]
        assert [h.log_probability for h in hypotheses] == pytest.approx(totals, abs=1e-4)


def test_early_stopping_saves_steps() -> None:
    # The end is likely: one step shows that nothing else can win.
    step = TableStep([-9.0, -9.0, -9.0, -0.1, -3.0, -4.0])
    [first, second] = beam_search(step, torch.tensor([1, 50]), search_config())
    assert first == second
    assert [(h.tokens, h.score) for h in first] == [((), pytest.approx(-0.1))]
    assert step.calls == 1


def test_a_search_goes_on_while_a_hypothesis_goes_well(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = torch.full((300,), 12)

    def best(**changes: object) -> list[Hypothesis]:
        step = RecurrentStep(list(range(300)), 3)
        config = search_config(length_penalty=2.0, **changes)
        return [row[0] for row in beam_search(step, limits, config)]

    bounded = best()
    full = best(stopping="full")
    hopeless_below = beam.HOPELESS_BELOW
    monkeypatch.setattr(beam, "HOPELESS_BELOW", -math.inf)
    exact = best()
    hopeless = 0
    for hypothesis, expected in zip(bounded, exact, strict=True):
        mean = hypothesis.log_probability / (len(hypothesis.tokens) + 1)
        assert hypothesis.tokens == expected.tokens or mean < hopeless_below
        hopeless += hypothesis.tokens != expected.tokens
    assert hopeless and bounded != full


def test_no_more_hypotheses_than_exist() -> None:
    # One piece at most, one usable piece: two hypotheses exist.
    step = TableStep([-math.inf, -math.inf, -math.inf, -1.0, -0.5])
    config = search_config(beam_size=4, nbest=4)
    [hypotheses] = beam_search(step, torch.tensor([1]), config)
    assert [h.tokens for h in hypotheses] == [(), (4,)]


@pytest.mark.parametrize(
    ("alpha", "limit", "schedule", "length"),
    [
        # Without a penalty, each token is a loss.
        (0.0, 4, [(-2.0, -0.2)], 0),
        # The penalty still grows: the longest wins, though it looks lost after one piece.
        (3.0, 4, [(-0.5, -0.9), (-0.01, -0.01)], 4),
        # It wins only because its end is part of its length.
        (3.0, 2, [(-0.5, -1.0), (-0.01, -0.01)], 2),
        # The penalty still falls: the next to end wins, though the longest would have lost.
        (-1.0, 40, [(-0.5, -0.1), (-0.01, -0.2)], 1),
    ],
)
def test_search_continues_while_the_penalty_may_reorder(
    alpha: float, limit: int, schedule: list[tuple[float, float]], length: int
) -> None:
    """A row of the schedule has the log-probabilities of the end and of token 4."""
    step = TableStep(*[[-math.inf] * 3 + list(row) for row in schedule])
    config = search_config(beam_size=6, length_penalty=alpha)
    [[best]] = beam_search(step, torch.tensor([limit]), config)
    assert best.tokens == (4,) * length


SENTENCES = [3, 8, 21, 5]
LIMITS = torch.tensor([4, 6, 5, 6])


def diverse_config(groups: int, diversity: float) -> SearchConfig:
    return search_config(
        algorithm="diverse", beam_size=6, nbest=6, groups=groups, diversity=diversity
    )


def test_one_group_or_no_diversity_is_beam_search() -> None:
    for width, groups, diversity in ((6, 1, 0.5), (2, 3, 0.0)):
        config = search_config(beam_size=width, nbest=width)
        plain = beam_search(RecurrentStep(SENTENCES, width), LIMITS, config)
        config = diverse_config(groups, diversity)
        diverse = diverse_search(RecurrentStep(SENTENCES, 6), LIMITS, config)
        assert [[h.tokens for h in row] for row in diverse] == [
            [h.tokens for h in row] for row in plain
        ]


def test_a_group_pays_for_each_hypothesis_of_earlier_groups_with_its_token() -> None:
    # The second group still takes the most probable token; the third pays for it twice.
    step = TableStep([-9.0, -9.0, -9.0, -8.0, -0.5, -1.25])
    config = search_config(algorithm="diverse", nbest=3, groups=3, diversity=0.5)
    [found] = diverse_search(step, torch.tensor([1]), config)
    assert [h.tokens for h in found] == [(4,), (5,)]


def test_a_group_pays_for_what_ended_and_for_what_follows_in_its_place() -> None:
    sentences = Sentences(torch.tensor([5]))
    groups = Groups([beam.start(sentences, 2) for _ in range(2)])
    values = torch.tensor([0.0, 0.0, 0.0, 0.4, 0.3, 0.15, 0.1, 0.05]).log().expand(1, 4, -1)
    config = search_config(algorithm="diverse", beam_size=4, groups=2, diversity=5.0)
    state = groups.advance(values.clone(), sentences, config).state
    assert isinstance(state, Groups)
    assert [group.live.tokens[0, :, -1].tolist() for group in state.beams] == [[4, 5], [6, 7]]
    # The end is as any token: the first group has one hypothesis that ended, the second none.
    assert [int(group.finished.scores.isfinite().sum()) for group in state.beams] == [1, 0]


def test_diverse_scores_are_those_of_the_model_in_any_batch() -> None:
    config = diverse_config(3, 0.3)
    together = diverse_search(RecurrentStep(SENTENCES, 6), LIMITS, config)
    for index, found in enumerate(together):
        rows = slice(index, index + 1)
        [alone] = diverse_search(RecurrentStep(SENTENCES[rows], 6), LIMITS[rows], config)
        assert [h.tokens for h in alone] == [h.tokens for h in found]
        assert found == sorted(found, key=lambda h: -h.score)
        for hypothesis in found:
            tokens = [*hypothesis.tokens, EOS]
            total = sum(
                next_tokens(SENTENCES[index], tokens[:position])[token]
                for position, token in enumerate(tokens)
            )
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("many", [10, 5 * BLOCK, 7 * BLOCK + 13, 30 * BLOCK + 1])
@pytest.mark.parametrize("count", [1, 4, 10])
def test_the_largest_are_those_of_topk(many: int, count: int) -> None:
    values = torch.randn(6, many, generator=torch.Generator().manual_seed(many))
    values[1, 3:] = -math.inf
    values[2] = values[2].sort().values
    best, positions = largest(values, count)
    expected = values.topk(count)
    assert torch.equal(best, expected.values)
    assert torch.equal(values.gather(1, positions), best)
    assert all(len(set(row)) == count for row in positions.tolist())
    assert torch.equal(positions[2], expected.indices[2])


@pytest.mark.parametrize("many", [5, 129, 1000])
def test_the_first_of_equal_values_is_found_as_max_does(many: int) -> None:
    values = torch.randint(4, (50, many), generator=torch.Generator().manual_seed(many)).float()
    values[0] = 0.0
    values[1, -1] = values[2, 0] = 9.0
    best, index = first_largest(values)
    expected = torch.tensor([row.index(max(row)) for row in values.tolist()])
    assert torch.equal(index[:, 0], expected) and torch.equal(best[:, 0], values.amax(1))
