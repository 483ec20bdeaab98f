"""Beam search against a plain re-telling of its rule, and facts about single searches."""

import math

import pytest
import torch
from torch import Tensor

from tests.helpers.decoding.steps import RecurrentStep, search_config
from transformer.decoding.search import beam
from transformer.decoding.search.beam import BLOCK, beam_search, largest
from transformer.decoding.search.search import Hypothesis
from transformer.settings.decoding import SearchConfig, length_penalty
from transformer.settings.tokenizer import BOS, EOS, PAD

SEEDS = list(range(12))


class TableStep:
    """The same log-probabilities at every step."""

    def __init__(self, values: list[float], rows: int, beam: int) -> None:
        self.values = torch.tensor(values).expand(rows, beam, -1)
        self.beams: list[int] = []

    def __call__(self, tokens: Tensor) -> Tensor:
        self.beams.append(len(tokens))
        return self.values[: len(tokens)].clone()

    def reorder(self, beams: Tensor) -> None:
        assert len(beams) == self.beams[-1] or len(beams) < self.beams[-1]

    def keep(self, sentences: Tensor) -> None:
        assert len(sentences) > 0


class ScheduleStep(TableStep):
    """Log-probabilities by the number of pieces; the last ones stay. Only 3 (the end) and 4."""

    def __init__(self, schedule: list[tuple[float, float]], beam: int) -> None:
        super().__init__([-math.inf] * 5, 1, beam)
        self.schedule = schedule

    def __call__(self, tokens: Tensor) -> Tensor:
        values = super().__call__(tokens)
        end, subword = self.schedule[min(len(self.beams), len(self.schedule)) - 1]
        values[..., EOS], values[..., 4] = end, subword
        return values


def next_tokens(seed: int, tokens: list[int]) -> list[float]:
    """Log-probabilities after these tokens, computed from the beginning."""
    step = RecurrentStep([seed], 1)
    for token in [BOS, *tokens]:
        values = step(torch.tensor([[token]]))
    return values.flatten().tolist()


def plain_beam_search(seed: int, limit: int, config: SearchConfig) -> list[Hypothesis]:
    """One sentence, lists, no cache: until ``beam_size`` hypotheses ended or all reached the limit.

    It never stops early on a bound, so that it also tells whether the bound loses anything.
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
        assert [h.log_probability for h in hypotheses] == pytest.approx(
            [h.log_probability for h in expected], abs=1e-4
        )


def test_early_stopping_and_finished_sentences_save_steps() -> None:
    # The end is likely: one step shows that nothing else can win.
    step = TableStep([-9.0, -9.0, -9.0, -0.1, -3.0, -4.0], 2, 3)
    [first, second] = beam_search(step, torch.tensor([1, 50]), search_config())
    assert first == second
    assert [(h.tokens, h.score) for h in first] == [((), pytest.approx(-0.1))]
    assert step.beams == [2]
    # The end is unlikely: both go on to their limit, and the shorter one leaves.
    step = TableStep([-9.0, -9.0, -9.0, -8.0, -0.1, -9.0], 2, 1)
    config = search_config(beam_size=1)
    [first], [second] = beam_search(step, torch.tensor([2, 4]), config)
    assert (first.tokens, second.tokens) == ((4, 4), (4, 4, 4, 4))
    assert step.beams == [2, 2, 2, 1, 1]


def test_a_full_beam_may_stop_before_the_winner_is_found() -> None:
    missed = 0
    for alpha in (0.0, 0.6, 1.0):
        limits = torch.full((200,), 8)
        found, calls = {}, {}
        for stopping in ("exact", "full"):
            step = RecurrentStep(list(range(200)), 4)
            config = search_config(beam_size=4, length_penalty=alpha, stopping=stopping)
            found[stopping] = [best.score for best, *_ in beam_search(step, limits, config)]
            calls[stopping] = step.rows
        assert all(e >= f for e, f in zip(found["exact"], found["full"], strict=True))
        assert calls["full"] < calls["exact"]
        missed += sum(e > f for e, f in zip(found["exact"], found["full"], strict=True))
    assert missed


def test_a_hopeless_search_takes_no_more_steps_than_a_full_beam() -> None:
    # No token is likely. With the length penalty, one of the 400th step could still be better.
    values = [-9.0, -9.0, -9.0, -2.0, -2.1, -2.2, -2.3, -2.4]
    steps = {}
    for stopping in ("exact", "full"):
        step = TableStep(values, 1, 3)
        config = search_config(length_penalty=1.0, stopping=stopping)
        [[steps[stopping, "best"]]] = beam_search(step, torch.tensor([400]), config)
        steps[stopping] = len(step.beams)
    assert steps["exact"] == steps["full"] < 9
    assert steps["exact", "best"] == steps["full", "best"]


def test_a_search_goes_on_while_a_hypothesis_goes_well(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, hopeless, later = list(range(300)), 0, 0
    limits = torch.full((300,), 12)
    for alpha in (0.6, 1.0, 2.0):
        found = {}
        for rule in ("bounded", "full", "exact"):
            config = search_config(
                length_penalty=alpha, stopping="full" if rule == "full" else "exact"
            )
            step = RecurrentStep(seeds, 3)
            if rule == "exact":
                monkeypatch.setattr(beam, "GOING_WELL", -math.inf)
            found[rule] = [row[0] for row in beam_search(step, limits, config)]
            monkeypatch.undo()
        for bounded, full, exact in zip(*found.values(), strict=True):
            going_well = bounded.log_probability / (len(bounded.tokens) + 1) >= beam.GOING_WELL
            assert bounded.tokens == exact.tokens or not going_well
            hopeless += bounded.tokens != exact.tokens
            later += bounded.tokens != full.tokens
    assert hopeless and later


def test_no_control_symbols_and_no_more_than_exist() -> None:
    step = TableStep([-0.1, -5.0, -0.1, -7.0, -6.0], 1, 3)
    config = search_config(nbest=3)
    [hypotheses] = beam_search(step, torch.tensor([6]), config)
    assert len(hypotheses) == 3
    assert not {PAD, BOS, EOS} & {token for h in hypotheses for token in h.tokens}
    # One piece at most, one usable piece: two hypotheses exist.
    step = TableStep([-math.inf, -math.inf, -math.inf, -1.0, -0.5], 1, 4)
    config = search_config(beam_size=4, nbest=4)
    [hypotheses] = beam_search(step, torch.tensor([1]), config)
    assert [h.tokens for h in hypotheses] == [(), (4,)]


def test_equals_are_ranked_the_same_way_every_time() -> None:
    def search(sentences: int) -> list[list[Hypothesis]]:
        step = TableStep([-1.0] * 6, sentences, 3)
        return beam_search(step, torch.tensor([4] * sentences), search_config(nbest=3))

    [alone] = search(1)
    assert len(alone) == 3
    assert search(5) == [alone] * 5


def test_the_penalty_decides_between_short_and_long() -> None:
    values = [-math.inf, -math.inf, -math.inf, -2.0, -0.2]

    def best(alpha: float) -> int:
        config = search_config(beam_size=5, length_penalty=alpha)
        [[hypothesis]] = beam_search(TableStep(values, 1, 5), torch.tensor([4]), config)
        return len(hypothesis.tokens)

    assert (best(0.0), best(3.0)) == (0, 4)


@pytest.mark.parametrize(
    ("alpha", "limit", "schedule", "length"),
    [
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
    config = search_config(beam_size=6, length_penalty=alpha)
    [[best]] = beam_search(ScheduleStep(schedule, 6), torch.tensor([limit]), config)
    assert best.tokens == (4,) * length


@pytest.mark.parametrize("many", [10, BLOCK, 5 * BLOCK, 7 * BLOCK + 13, 30 * BLOCK + 1])
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
    values[4, many // 2] = math.nan
    assert largest(values, count)[0][4].isnan().any()
