"""Who may attend to whom."""

import pytest
import torch

from transformer.model.attention.masks import causal_mask, padding_mask


def test_padding_alone_is_hidden_from_every_query() -> None:
    tokens = torch.tensor([[5, 7, 3, 7], [9, 3, 7, 7]])
    mask = padding_mask(tokens, 7)
    assert mask.shape == (2, 1, 1, 4)
    # Padding in the middle of a row is masked too: the mask goes by the symbol alone.
    assert mask.flatten(1).tolist() == [[True, False, True, False], [True, True, False, False]]


def test_a_position_sees_itself_and_what_stands_before_it() -> None:
    assert causal_mask(3, 3)[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("past", [1, 4])
@pytest.mark.parametrize("queries", [1, 2, 3])
def test_with_a_cache_queries_are_the_last_rows(queries: int, past: int) -> None:
    whole = causal_mask(past + queries, past + queries)
    assert torch.equal(causal_mask(queries, past + queries), whole[:, :, past:])
    # The first new position sees all of the past and itself, the last one everything.
    assert causal_mask(queries, past + queries)[0, 0].sum(-1).tolist() == [
        past + n for n in range(1, queries + 1)
    ]
