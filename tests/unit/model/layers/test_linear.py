"""The linear map by oneDNN: when it computes, and that it computes the same."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.helpers.tolerance import assert_close
from transformer.model.layers import linear as module
from transformer.model.layers.linear import ONEDNN_FROM, Linear


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes that oneDNN was given."""
    shapes: list[tuple[int, ...]] = []
    product = module.onednn_linear
    assert product is not None

    def counted(x: Tensor, *rest: object) -> Tensor:
        shapes.append(tuple(x.shape))
        mapped: Tensor = product(x, *rest)
        return mapped

    monkeypatch.setattr(module, "onednn_linear", counted)
    return shapes


def large(*, bias: bool = True) -> tuple[Linear, Tensor]:
    torch.manual_seed(1)
    return Linear(64, 256, bias=bias), torch.randn(4, ONEDNN_FROM // (4 * 64 * 256), 64)


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_product_that_torch_computes(bias: bool, calls: list[tuple[int, ...]]) -> None:
    linear, x = large(bias=bias)
    with torch.inference_mode():
        assert_close(linear(x), F.linear(x, linear.weight, linear.bias))
        strided = x.transpose(0, 1)
        assert_close(linear(strided), F.linear(strided, linear.weight, linear.bias))
    assert len(calls) == 2


def test_torch_computes_gradients_small_products_other_types(calls: list[tuple[int, ...]]) -> None:
    linear, x = large()
    linear(x).sum().backward()
    assert linear.weight.grad is not None and bool(linear.weight.grad.any())
    with torch.inference_mode():
        linear(x[:1])
        linear.double()(x.double())
        linear.float()
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(x).dtype == torch.bfloat16
    assert calls == []


@torch.inference_mode()
def test_without_onednn_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "onednn_linear", None)
    linear, x = large()
    assert torch.equal(linear(x), F.linear(x, linear.weight, linear.bias))
