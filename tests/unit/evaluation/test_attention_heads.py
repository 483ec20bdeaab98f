"""The measures of a head, on weights made by hand, and the words for them."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from transformer.evaluation.attention_heads import (
    HeadCharacter,
    best_heads,
    describe,
    head_totals,
)

SEPARATOR_LAST = torch.tensor([[False, False, False, True]])
ALL = torch.ones(1, 4, 4, dtype=torch.bool)
CAUSAL = ALL.tril()


def measure(
    weights: Tensor, visible: Tensor = ALL, separator: Tensor = SEPARATOR_LAST
) -> HeadCharacter:
    """The only head of one sentence."""
    (head,) = head_totals(weights[None, None].float(), visible, separator).characters()
    return head


def character(**measures: float) -> HeadCharacter:
    return replace(HeadCharacter(**dict.fromkeys(HeadCharacter.__annotations__)), **measures)


def test_a_head_of_the_previous_position() -> None:
    weights = torch.tensor(
        [[0.0, 0.0, 0.0, 1.0], [0.9, 0.1, 0.0, 0.0], [0.2, 0.8, 0.0, 0.0], [0.6, 0.0, 0.4, 0.0]]
    )
    head = measure(weights)
    # The first query has no previous position; the other three give it 0.9, 0.8 and 0.4.
    assert head.previous == pytest.approx(0.7)
    assert head.previous_peak == pytest.approx(2 / 3)
    assert head.same == pytest.approx(0.1 / 4)
    # The last query has no next position.
    assert head.next == pytest.approx(0.0)
    assert head.first == pytest.approx((0.0 + 0.9 + 0.2 + 0.6) / 4)
    assert head.separator == pytest.approx(1 / 4)
    # The weight of the first query lies on the separator, which is no token.
    assert head.confidence == pytest.approx((0.0 + 0.9 + 0.8 + 0.6) / 4)
    assert describe(head) == "attends to the previous position (0.70)"


def test_entropy_of_equal_weights_and_without_a_choice() -> None:
    head = measure(torch.full((4, 4), 0.25))
    assert head.entropy == pytest.approx(math.log(4))
    assert head.possible_entropy == pytest.approx(math.log(4))
    assert describe(head) == "broad (entropy 1.4 of 1.4 nats)"
    one = torch.ones(1, 1, 1, dtype=torch.bool)
    (head,) = head_totals(one[None].float(), one, torch.tensor([[True]])).characters()
    assert set(head.to_json().values()) == {None}
    assert describe(head) == "not measured: no query had a choice"


def test_decoder_has_no_next_position_and_no_first_choice() -> None:
    head = measure(torch.eye(4), CAUSAL, torch.zeros(1, 4, dtype=torch.bool))
    assert head.next is None
    assert head.separator is None
    assert head.same == pytest.approx(1.0)
    # Step 0 sees itself alone: it would say that the head looks at the first position.
    assert head.first == pytest.approx(0.0)
    assert head.entropy == pytest.approx(0.0)
    assert head.possible_entropy == pytest.approx((math.log(2) + math.log(3) + math.log(4)) / 3)


def test_padding_changes_nothing() -> None:
    visible = torch.zeros(1, 6, 6, dtype=torch.bool)
    visible[:, :4, :4] = True
    weights = torch.randn(4, 4).softmax(-1)
    padded = torch.randn(6, 6).softmax(-1)
    padded[:4, :4], padded[:4, 4:] = weights, 0.0
    separator = torch.nn.functional.pad(SEPARATOR_LAST, (0, 2))
    alone, among = measure(weights).to_json(), measure(padded, visible, separator).to_json()
    assert among == pytest.approx(alone)


def test_batches_add_up_to_the_mean_over_queries() -> None:
    short = torch.randn(1, 1, 2, 2).softmax(-1)
    long = torch.randn(1, 1, 4, 4).softmax(-1)
    totals = head_totals(short, ALL[:, :2, :2], SEPARATOR_LAST[:, 2:])
    [head] = (totals + head_totals(long, ALL, SEPARATOR_LAST)).characters()
    same = short.diagonal(dim1=2, dim2=3).sum() + long.diagonal(dim1=2, dim2=3).sum()
    assert head.same == pytest.approx(float(same) / 6, rel=1e-5)


def test_the_first_rule_that_holds_gives_the_words() -> None:
    first = character(previous=0.55, first=0.6)
    assert describe(first) == "attends to the first position (0.60)"
    peak = character(next=0.4, next_peak=0.93)
    assert describe(peak) == "strongest at the next position (93% of queries)"
    one = character(same=0.1, confidence=0.62, entropy=1.0, possible_entropy=2.4)
    assert describe(one) == "picks one token, at no fixed place (mean maximum 0.62)"
    mixed = character(same=0.4, previous=0.3, next=0.2, confidence=0.49)
    assert describe(mixed) == "mixed (the same position 0.40, the previous position 0.30)"


def test_best_heads_are_named_with_what_makes_them_so() -> None:
    layers = [
        [character(previous=0.6, confidence=0.7, alignment_error=0.5), character(previous=0.9)],
        [
            character(alignment_error=0.1, entropy=1.0, possible_entropy=2.0, next=0.4),
            character(alignment_error=0.3, confidence=0.6),
        ],
    ]
    named = [(best.title, best.layer, best.head, best.text) for best in best_heads(layers, 2)]
    assert named == [
        ("word alignment", 1, 0, "AER 0.100"),
        ("word alignment", 1, 1, "AER 0.300"),
        ("the previous position", 0, 1, "0.90"),
        ("most confident", 0, 0, "mean maximum 0.70"),
        ("broadest", 1, 0, "50% of the possible entropy"),
    ]
