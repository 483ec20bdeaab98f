"""The formula and the fused kernel are two ways to the same numbers."""

import pytest
import torch

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.model.attention.kernels.fused import attend_fused
from transformer.model.attention.masks import causal_mask
from transformer.model.attention.scaled_dot_product import attend

SHAPES = [(2, 4, 5, 7, 8), (1, 1, 1, 1, 4), (2, 2, 1, 9, 16)]


def masks(batch: int, query: int, key: int) -> dict[str, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(1)
    padding = torch.rand(batch, 1, 1, key, generator=generator) < 0.7
    padding[..., 0] = True
    blind = padding.expand(batch, 1, query, key).clone()
    blind[0, :, 0] = False
    return {"none": None, "padding": padding, "causal": causal_mask(query, key), "blind": blind}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["none", "padding", "causal", "blind"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_plain_equals_fused_in_value_and_gradient(
    shape: tuple[int, ...], kind: str, dtype: torch.dtype
) -> None:
    batch, head, query, key, width = shape
    generator = torch.Generator().manual_seed(2)
    sizes = [(batch, head, query, width), (batch, head, key, width), (batch, head, key, width)]
    inputs = [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in sizes]
    mask = masks(batch, query, key)[kind]
    plain, _ = attend(*inputs, mask)
    fused = attend_fused(*inputs, mask)
    assert_close(fused, plain)
    upstream = torch.randn(plain.shape, generator=generator).to(dtype)
    for mine, other in zip(
        torch.autograd.grad(plain, inputs, upstream),
        torch.autograd.grad(fused, inputs, upstream),
        strict=True,
    ):
        assert torch.isfinite(mine).all()
        assert_close(other, mine)


@pytest.mark.parametrize("attention", [attend, attend_fused])
def test_a_query_that_may_attend_to_nothing_yields_zeros(attention: object) -> None:
    query = torch.randn(1, 2, 3, 4, requires_grad=True)
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    mask[:, :, 1] = False
    result = attention(query, query, query, mask)  # type: ignore[operator]
    attended = result[0] if isinstance(result, tuple) else result
    assert (attended[:, :, 1] == 0).all()
    assert (attended[:, :, 0] != 0).any()
    attended.sum().backward()
    assert torch.isfinite(query.grad).all()


@pytest.mark.parametrize("attention", ["sdpa", "flex", "auto"])
@pytest.mark.parametrize("length", [5, 70])
def test_a_source_without_tokens_spoils_no_training_batch(attention: str, length: int) -> None:
    tokens = torch.randint(4, 20, (2, length))
    source = tokens * torch.tensor([[1], [0]])
    formula = tiny_transformer(attention="eager", dropout=0.0).train()
    model = tiny_transformer(attention=attention, dropout=0.0).train()
    hidden = model(source, tokens)
    assert_close(hidden, formula(source, tokens))
    hidden.pow(2).sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is None or torch.isfinite(weight.grad).all(), name


def test_weights_are_a_distribution_with_the_scale_of_a_head() -> None:
    query, key = torch.randn(2, 1, 3, 4), torch.randn(2, 1, 5, 4)
    mask = torch.rand(2, 1, 3, 5) < 0.5
    mask[..., 0] = True
    _, weights = attend(query, key, key, mask)
    assert_close(weights.sum(-1), torch.ones(2, 1, 3))
    assert (weights[~mask] == 0).all()
    # A key along the query has the score d_k / sqrt(d_k) = 2 for d_k = 4, the other one 0.
    query = torch.ones(1, 1, 1, 4)
    key = torch.stack([torch.ones(4), torch.zeros(4)])[None, None]
    _, weights = attend(query, key, key)
    assert_close(weights[0, 0, 0], torch.tensor([2.0, 0.0]).softmax(0))
