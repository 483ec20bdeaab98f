"""The linear map laid out for inference, and several maps as one product."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.helpers.model.tolerance import assert_close
from transformer.common.processor import PROCESSORS
from transformer.model.layers import linear as module
from transformer.model.layers.fused_projection import fused_projection, linear_together
from transformer.model.layers.linear import Linear, lay_out


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes that oneDNN was given, on a processor where it is faster."""
    shapes: list[tuple[int, ...]] = []
    product = module.onednn_linear
    assert product is not None

    def counted(x: Tensor, *rest: object) -> Tensor:
        shapes.append(tuple(x.shape))
        mapped: Tensor = product(x, *rest)
        return mapped

    monkeypatch.setattr(module, "onednn_linear", counted)
    monkeypatch.setattr(module, "processor", lambda: PROCESSORS["amd-avx512"])
    return shapes


def large() -> tuple[Linear, Tensor]:
    torch.manual_seed(1)
    return Linear(64, 256), torch.randn(4, 2**20 // (4 * 64 * 256), 64)


def test_it_is_the_product_that_torch_computes(calls: list[tuple[int, ...]]) -> None:
    linear, x = large()
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


@pytest.mark.parametrize("untie", [False, True])
def test_a_laid_out_model_keeps_names_and_values(
    untie: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "processor", lambda: PROCESSORS["amd-avx2"])
    model = nn.ModuleDict(
        {"tokens": nn.Embedding(5, 4), "inner": Linear(4, 4), "out": Linear(4, 5)}
    )
    model["out"].weight = model["tokens"].weight
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    lay_out(model, untie=untie)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert after["inner.weight"].t().is_contiguous() and after["tokens.weight"].is_contiguous()
    assert (model["out"].weight is model["tokens"].weight) is not untie


def test_a_fused_projection_has_the_values_and_gradients_of_several() -> None:
    torch.manual_seed(1)
    layers = [Linear(6, width) for width in (4, 2, 4)]
    x = torch.randn(3, 5, 6, requires_grad=True)
    weights = [x, *(parameter for layer in layers for parameter in layer.parameters())]
    upstream = [torch.randn(3, 5, layer.out_features) for layer in layers]

    def gradients(mapped: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        total = sum(((y * g).sum() for y, g in zip(mapped, upstream, strict=True)), x.new_zeros(()))
        return torch.autograd.grad(total, weights)

    apart = tuple(layer(x) for layer in layers)
    fused = fused_projection(x, layers)
    for actual, expected in zip(fused, apart, strict=True):
        assert_close(actual, expected)
    for actual, expected in zip(gradients(fused), gradients(apart), strict=True):
        assert_close(actual, expected)


def test_off_the_cpu_a_trained_map_is_fused() -> None:
    layers = [Linear(6, 4, device="meta") for _ in range(3)]
    x = torch.empty(2, 6, device="meta")
    assert {y.stride(0) for y in linear_together(x, layers)} == {12}
    with torch.no_grad():
        assert {y.stride(0) for y in linear_together(x, layers)} == {4}
