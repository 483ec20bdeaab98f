"""Models in bfloat16 and int8 say nearly what they said."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError
from transformer.common.processor import PROCESSORS, Processor
from transformer.common.processor import processor as processor_of_this_machine
from transformer.model.layers import quantization
from transformer.model.layers.fused_projection import linear_together
from transformer.model.layers.linear import Linear
from transformer.model.layers.quantization import Int8Linear, in_precision
from transformer.settings.model import Precision

SOURCE = torch.tensor([[4, 5, 6, 3], [7, 8, 3, 0]])
TARGET = torch.tensor([[2, 9, 10], [2, 11, 12]])

MODELS: list[dict[str, Any]] = [
    {},
    {"norm": "rms", "positions": "rotary", "activation": "swiglu", "num_kv_heads": 2},
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


SUPPORTED = torch.backends.quantized.supported_engines
ENGINES = [
    replace(PROCESSORS[kind], int8_onednn_from=least)
    for kind, least in [*product(("amd-avx2", "amd-avx512"), (None, 0)), ("arm", None)]
    if PROCESSORS[kind].int8 in SUPPORTED
    # Products of eight bits overflow on a processor that takes seven.
    and (PROCESSORS[kind].seven_bits or not processor_of_this_machine().seven_bits)
]
"""Every way to multiply in int8 that is in this build of torch, and right on this processor."""


def int8(linear: Linear, processor: Processor) -> Int8Linear:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantization, "processor", lambda: processor)
        return Int8Linear(linear.weight, linear.bias)


@pytest.mark.parametrize("processor", ENGINES)
@torch.inference_mode()
def test_int8_is_the_product_of_rounded_numbers(processor: Processor) -> None:
    torch.manual_seed(1)
    linear, x = Linear(32, 8), torch.randn(5, 32)
    scale = linear.weight.abs().amax(1, keepdim=True) / 127
    rounded = (linear.weight / scale).round() * scale
    # Each row of activations has its own 127 or 255 values.
    step = x.abs().amax(1, keepdim=True) / (63 if processor.seven_bits else 127)
    expected = torch.nn.functional.linear((x / step).round() * step, rounded, linear.bias)
    torch.testing.assert_close(int8(linear, processor)(x), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("processor", ENGINES)
@torch.inference_mode()
def test_a_row_does_not_depend_on_the_others(processor: Processor) -> None:
    torch.manual_seed(1)
    linear = Linear(40, 300)
    quantized = int8(linear, processor)
    x = torch.randn(70, 40) * torch.logspace(-3, 3, 70)[:, None]
    x[1], x[2, 3] = 0.0, math.nan
    together = quantized(x.view(7, 10, 40)).view(70, 300)
    for alone, row in zip(together, x, strict=True):
        torch.testing.assert_close(quantized(row[None])[0], alone, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(together[1], linear.bias)
    assert together.isnan().any(1).nonzero().flatten().tolist() == [2]
    assert quantized(x[:0]).shape == (0, 300)


@pytest.mark.parametrize("biased", [True, False])
@torch.inference_mode()
def test_maps_of_one_input_are_fused(biased: bool) -> None:
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
    # One product, in one storage.
    assert len({y.untyped_storage().data_ptr() for y in together}) == 1


def test_int8_converts_each_map_once_and_only_on_a_cpu() -> None:
    model = in_precision(tiny_transformer(share_layers="all", encoder_layers=3), "int8")
    assert not any(isinstance(module, Linear) for module in model.modules())
    first, _, last = model.encoder.layers
    assert first.attention.query is last.attention.query  # type: ignore[union-attr]
    with pytest.raises(InputError, match="precision=int8 computes on a CPU, not on device=cuda"):
        in_precision(tiny_transformer(), "int8", "cuda")
