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


@pytest.mark.parametrize("past", [0, 1, 4])
@pytest.mark.parametrize("queries", [1, 2, 3])
def test_a_position_sees_itself_and_earlier_ones(queries: int, past: int) -> None:
    """With a cache, the queries are the last rows of the square mask."""
    expected = [[key <= past + query for key in range(past + queries)] for query in range(queries)]
    assert causal_mask(queries, past + queries)[0, 0].tolist() == expected
