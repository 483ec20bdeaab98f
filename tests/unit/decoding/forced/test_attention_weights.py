"""Attention over given pairs: what is visible, and the weights of a pair whatever its batch."""

from typing import Any

import pytest
import torch

from tests.helpers.models import tiny_transformer
from tests.helpers.tolerance import assert_close
from transformer.decoding.forced.attention_weights import ForcedAttention, forced_attention

SOURCES, TARGETS = [[5, 6, 7, 8, 9], [10, 11]], [[12, 13], [14, 15, 16, 17]]


def forced(**changes: Any) -> ForcedAttention:
    return forced_attention(tiny_transformer(**changes), SOURCES, TARGETS)


@pytest.mark.parametrize("changes", [{}, {"pattern": "sliding", "window": 1}])
def test_a_row_has_all_its_weight_on_what_it_may_see(changes: dict[str, Any]) -> None:
    attention = forced(**changes)
    for attended in (attention.encoder, attention.decoder, attention.cross):
        real = attended.visible.any(-1)
        for weights in attended.weights:
            on_visible = weights.masked_fill(~attended.visible[:, None], 0.0).sum(-1)
            rows = on_visible.transpose(1, 2)[real]
            assert_close(rows, torch.ones_like(rows))


def test_padding_sees_nothing_and_is_not_seen() -> None:
    attention = forced()
    # One more for the end of the source, the beginning or the end of the target.
    assert attention.encoder.visible.sum((1, 2)).tolist() == [6 * 6, 3 * 3]
    assert attention.decoder.visible.sum((1, 2)).tolist() == [1 + 2 + 3, 1 + 2 + 3 + 4 + 5]
    assert attention.cross.visible.sum((1, 2)).tolist() == [3 * 6, 5 * 3]
    assert attention.encoder.separator.nonzero().tolist() == [[0, 5], [1, 2]]
    assert torch.equal(attention.cross.separator, attention.encoder.separator)
    assert not attention.decoder.separator.any()
    # A pattern hides what is far.
    attention = forced(pattern="sliding", window=1)
    assert attention.encoder.visible.sum((1, 2)).tolist() == [6 + 2 * 5, 3 + 2 * 2]
    assert attention.decoder.visible.sum((1, 2)).tolist() == [3 + 2, 5 + 4]


def test_a_pair_has_the_weights_that_it_has_alone() -> None:
    both = forced()
    alone = forced_attention(tiny_transformer(), SOURCES[1:], TARGETS[1:])
    for kind in ("encoder", "decoder", "cross"):
        for batch, single in zip(
            getattr(both, kind).weights, getattr(alone, kind).weights, strict=True
        ):
            assert_close(batch[1:, :, : single.size(2), : single.size(3)], single)
