"""Tests run with the shapes in the signatures checked."""

import pytest
import torch
from jaxtyping import TypeCheckError

from tests.helpers.suite.checks import CALLS, no_checks
from transformer.model.attention.scaled_dot_product import attend


def test_a_wrong_shape_is_noticed_unless_nothing_is_checked() -> None:
    query, key = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 5)
    with pytest.raises(TypeCheckError):
        attend(query, key, key)
    with no_checks(), pytest.raises(RuntimeError, match="size"):
        attend(query, key, key)
    with pytest.raises(TypeCheckError):
        attend(query, key, key)


def test_the_first_calls_of_a_test_are_checked_and_few_of_the_others() -> None:
    query, key = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 5)
    noticed = []
    for number in range(1, 70):
        with pytest.raises((TypeCheckError, RuntimeError)) as caught:
            attend(query, key, key)
        if caught.type is TypeCheckError:
            noticed.append(number)
    assert noticed == [*range(1, CALLS + 1), 16, 32, 64]
