"""An update of a batch padded to a shape is that of its pairs: loss, gradients and weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.updates import loss_config, translation_module
from tests.parity.test_compile import pairs
from transformer.data.batching.batch import Batch, BatchShape, ShapedBatch, shaped
from transformer.settings.training import OptimizerConfig
from transformer.tasks.translation import TranslationModule
from transformer.training.losses.cross_entropy import NO_TOKEN, fused_cross_entropy
from transformer.training.losses.cross_entropy import _formula as formula
from transformer.training.optimization import build_optimizer

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}

NONE, MUCH, ONE_LABEL = (0, 0, 0), (3, 5, 40), (0, 1, 1)
"""Rows, columns and labels that are filler."""

ROTARY = {"positions": "rotary", "num_kv_heads": 2, "norm": "rms", "activation": "swiglu"}
ALIBI = {"positions": "alibi", "convolution_window": 3, "norm_order": "post", "attention": "eager"}
SPARSE = {"pattern": "bigbird", "decoder_pattern": "sliding"}
CASES: list[tuple[dict[str, Any], int, tuple[int, int, int]]] = [
    ({}, 7, NONE),
    ({}, 0, MUCH),
    ({}, 7, MUCH),
    ({}, 512, ONE_LABEL),
    (ROTARY, 512, MUCH),
    (ALIBI, 7, MUCH),
    (SPARSE, 0, MUCH),
]


def padded(batch: Batch, rows: int, columns: int, labels: int) -> ShapedBatch:
    """Some more of everything."""
    shape = BatchShape(
        batch.size + rows,
        batch.source.shape[1] + columns,
        batch.target_input.shape[1] + 2 * columns,
        batch.target_tokens + labels,
    )
    made = shaped(batch, shape)
    assert isinstance(made, ShapedBatch)
    return made


def updated(module: TranslationModule, batch: Batch) -> dict[str, Tensor]:
    """Loss, gradients of the mean, and weights after an update."""
    adam = build_optimizer(OptimizerConfig("adam", 1e-3, (0.9, 0.98), 1e-9, 0.0), module.model)
    loss, tokens, sums = module.micro_loss(batch)
    loss.backward()
    assert tokens == batch.target_tokens
    norm = module.normalize(float(tokens), adam)
    found = {"loss": sums["loss"] / tokens, "norm": norm}
    for name, weight in module.model.named_parameters():
        found[f"{name}, gradient"] = weight.grad
    adam.step()
    if norm.dtype == torch.float32:
        # Some gradients are 0 but for rounding, which Adam divides by its own size.
        return found
    return found | dict(module.model.named_parameters())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("changes", "chunk", "filler"), CASES)
def test_a_padded_update_is_a_plain_one(
    changes: dict[str, Any], chunk: int, filler: tuple[int, int, int], dtype: torch.dtype
) -> None:
    batch = pairs(6, 9, 8)
    expected, actual = (
        updated(translation_module(model, clip=0.1, loss=loss_config(chunk=chunk)), each)
        for each in (batch, padded(batch, *filler))
        for model in [tiny_transformer(**changes).to(dtype).train()]
    )
    for name, value in expected.items():
        if value is None:
            assert actual[name] is None, name
        else:
            torch.testing.assert_close(actual[name], value, rtol=0, atol=TOLERANCE[dtype])


def test_ignored_targets_have_neither_loss_nor_gradient() -> None:
    target = torch.tensor([[5], [0], [7]])
    made = torch.randn(3, 24, generator=torch.Generator().manual_seed(1))
    for ignored, counted in ((NO_TOKEN, [0, 1, 2]), (0, [0, 2])):
        plain, other, compiled = made[counted].clone(), made.clone(), made.clone()
        mean = made.mean(-1, keepdim=True)
        expected = formula(plain[None], target[counted], mean[None, counted], 0.1)
        found = formula(other[None], target, mean[None], 0.1, ignored)
        fused = fused_cross_entropy(compiled, target, 0.1, ignored)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(fused, expected)
        for gradient in (other, compiled):
            torch.testing.assert_close(gradient[counted], plain)
        if ignored == 0:
            assert not other[1].any() and not compiled[1].any()
