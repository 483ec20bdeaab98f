"""Models in bfloat16 and int8 say nearly what they said."""

from typing import Any

import pytest
import torch

from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError
from transformer.model.config import Precision
from transformer.model.layers import quantization
from transformer.model.layers.linear import Linear
from transformer.model.layers.one_product import linear_together
from transformer.model.layers.quantization import Int8Linear, in_precision

SOURCE = torch.tensor([[4, 5, 6, 3], [7, 8, 3, 0]])
TARGET = torch.tensor([[2, 9, 10], [2, 11, 12]])

MODELS: list[dict[str, Any]] = [
    {},
    {"norm": "rms", "positions": "rotary", "activation": "swiglu", "num_kv_heads": 2},
    {"positions": "alibi", "query_key_norm": True},
    {"positions": "relative", "norm_order": "post", "activation": "geglu"},
    {"positions": "learned", "share_layers": "all", "attention": "eager"},
]


@pytest.mark.parametrize("changes", MODELS)
@pytest.mark.parametrize(("precision", "near"), [("bfloat16", 0.03), ("int8", 0.06)])
@torch.inference_mode()
def test_logits_come_near(changes: dict[str, Any], precision: Precision, near: float) -> None:
    exact = tiny_transformer(**changes)
    expected = exact.logits(exact(SOURCE, TARGET))
    model = in_precision(tiny_transformer(**changes), precision)
    found = model.logits(model(SOURCE, TARGET)).float()
    distance = (found - expected).norm() / expected.norm()
    # Zero would mean that nothing was converted.
    assert 0 < distance < near


@torch.inference_mode()
def test_int8_is_the_product_of_rounded_numbers() -> None:
    torch.manual_seed(1)
    linear, x = Linear(32, 8), torch.randn(5, 32)
    quantized = Int8Linear(linear.weight, linear.bias)
    scale = linear.weight.abs().amax(1, keepdim=True) / 127
    rounded = (linear.weight / scale).round() * scale
    # Seven bits do not overflow anywhere; eight are what most processors take.
    for seven_bits in {quantized.seven_bits, True}:
        quantized.seven_bits = seven_bits
        # Activations have 256 or 128 values from the least to the largest, zero included.
        steps = 127 if seven_bits else 255
        step = (x.max().clamp(min=0) - x.min().clamp(max=0)) / steps
        expected = torch.nn.functional.linear((x / step).round() * step, rounded, linear.bias)
        torch.testing.assert_close(quantized(x), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("biased", [True, False])
@torch.inference_mode()
def test_maps_of_one_input_are_one_product(biased: bool) -> None:
    torch.manual_seed(2)
    layers = [
        Int8Linear(torch.randn(rows, 24), torch.randn(rows) if biased else None)
        for rows in (16, 8, 8)
    ]
    for rows in (1, 60):
        x = torch.randn(rows, 24)
        together = linear_together(x, layers)
        for found, layer in zip(together, layers, strict=True):
            torch.testing.assert_close(found, layer(x), rtol=0, atol=1e-5)
    # The second input is multiplied by the matrix that the first has made, all in one storage.
    assert len({y.untyped_storage().data_ptr() for y in together}) == 1
    assert len(layers[0]._joined) == 1


def test_what_is_converted_and_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model = in_precision(tiny_transformer(share_layers="all", encoder_layers=3), "int8")
    assert not any(isinstance(module, Linear) for module in model.modules())
    first, _, last = model.encoder.layers
    assert first.attention.query is last.attention.query  # type: ignore[union-attr]
    before = tiny_transformer().state_dict()
    monkeypatch.setattr("transformer.model.layers.linear.onednn_is_faster", lambda: False)
    after = in_precision(tiny_transformer(), "float32").state_dict()
    assert all(after[name].t().is_contiguous() for name in after if name.endswith("query.weight"))
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    with pytest.raises(InputError, match="precision=int8 computes on a CPU, not on device=cuda"):
        in_precision(tiny_transformer(), "int8", "cuda")


@torch.inference_mode()
def test_int8_keeps_the_engines_that_are_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    if len(both := quantization.engines()) < 2:
        pytest.skip("this processor has one engine")
    monkeypatch.setattr(quantization, "_measured", {})
    times = iter([2.0, 1.0, 1.0, 2.0])
    monkeypatch.setattr(quantization, "best_time", lambda *_: next(times))
    mixed = Int8Linear(torch.randn(8, 24), None)
    assert mixed.fastest == (both[1], both[0])
    # Another map of the shape is not measured again.
    assert Int8Linear(torch.randn(8, 24), None).fastest == mixed.fastest
    few, many = torch.randn(4, 24), torch.randn(2, 40, 24)
    for x in (few, many):
        first, second = (mixed._map(x, engine) for engine in both)
        torch.testing.assert_close(first, second, rtol=0, atol=0.05)
    used: list[str] = []
    monkeypatch.setattr(mixed, "_map", lambda x, engine: used.append(engine) or x)
    _ = mixed(few), mixed(many)
    assert used == list(mixed.fastest)
