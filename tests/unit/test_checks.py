"""Tests run with the shapes in the signatures checked."""

import pytest
import torch
from jaxtyping import TypeCheckError

from tests.helpers.checks import no_checks
from transformer.model.attention.scaled_dot_product import attend


def test_a_wrong_shape_is_noticed_unless_nothing_is_checked() -> None:
    query = torch.ones(1, 1, 2, 4)
    key = torch.ones(1, 1, 3, 5)
    with pytest.raises(TypeCheckError):
        attend(query, key, key)
    with no_checks(), pytest.raises(RuntimeError, match="size"):
        attend(query, key, key)
