"""The fused loss is the plain one, and the plain one is torch's."""

from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.updates import loss_config
from transformer.common.processor import PROCESSORS
from transformer.settings.training import LossConfig
from transformer.training.losses.cross_entropy import (
    cross_entropy,
    fused_cross_entropy,
    loss_function,
    negative_log_likelihood,
)

ROWS, WIDTH, VOCAB = 23, 8, 31


def inputs(rows: int = ROWS) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(rows, WIDTH, generator=generator, requires_grad=True)
    weight = torch.randn(VOCAB, WIDTH, generator=generator, requires_grad=True)
    return hidden, weight, torch.randint(0, VOCAB, (rows,), generator=generator)


def config(
    smoothing: float = 0.1, chunk: int = 4, bfloat16: bool | Literal["auto"] = False
) -> LossConfig:
    return loss_config(label_smoothing=smoothing, chunk=chunk, bfloat16=bfloat16)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_formula(smoothing: float) -> None:
    """Section 7: the target is (1 - e) on the right token and e / V on each of all V."""
    hidden, weight, target = inputs()
    log_p = (hidden @ weight.T).log_softmax(-1)
    expected = F.one_hot(target, VOCAB) * (1 - smoothing) + smoothing / VOCAB
    loss = cross_entropy(hidden, weight, target, smoothing)
    assert_close(loss, -(expected * log_p).sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_form_for_the_compiler_is_the_formula_and_leaves_its_gradient(
    smoothing: float,
) -> None:
    hidden, weight, target = inputs()
    logits = (hidden @ weight.T).detach()
    expected = cross_entropy(hidden, weight, target, smoothing)
    by_torch = logits.clone().requires_grad_()
    F.cross_entropy(by_torch, target, label_smoothing=smoothing, reduction="sum").backward()
    assert_close(fused_cross_entropy(logits, target[:, None], smoothing), expected.detach())
    assert_close(logits, by_torch.grad)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 22, 512])
def test_fused_equals_plain_in_value_and_gradient(chunk: int, smoothing: float) -> None:
    hidden, weight, target = inputs()
    plain = cross_entropy(hidden, weight, target, smoothing)
    fused = loss_function(config(smoothing, chunk), hidden, weight, target)
    assert_close(fused, plain)
    # Another upstream than one: the gradient of a mean, or of half of it.
    expected = torch.autograd.grad(plain, (hidden, weight), torch.tensor(0.7))
    actual = torch.autograd.grad(fused, (hidden, weight), torch.tensor(0.7))
    for mine, other in zip(actual, expected, strict=True):
        assert_close(mine, other)


@pytest.mark.parametrize(
    ("rows", "dtype"), [(0, torch.float32), (512, torch.float64), (1025, torch.float32)]
)
def test_without_a_gradient_it_is_the_plain_loss(rows: int, dtype: torch.dtype) -> None:
    hidden, weight, target = inputs(rows)
    with torch.no_grad():
        expected = cross_entropy(hidden.to(dtype), weight.to(dtype), target, 0.0)
        actual = negative_log_likelihood(hidden.to(dtype), weight.to(dtype), target)
    assert actual.dtype == dtype
    assert_close(actual, expected)


def test_fused_in_bfloat16_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, target = inputs()
    plain = cross_entropy(hidden, weight, target, 0.1)
    fused = loss_function(config(0.1, 5, True), hidden, weight, target)
    assert fused.dtype == torch.float32
    torch.testing.assert_close(fused, plain, rtol=1e-2, atol=0)
    expected = torch.autograd.grad(plain, (hidden, weight))
    actual = torch.autograd.grad(fused, (hidden, weight))
    for mine, other in zip(actual, expected, strict=True):
        assert mine.dtype == torch.float32
        assert 1e-5 < ((mine - other).norm() / other.norm()).item() < 1e-2
    with torch.autocast("cpu", torch.bfloat16):
        under = loss_function(config(0.1, 5), hidden, weight, target)
    assert torch.equal(under, fused)
    # Where the processor has bfloat16, auto takes it.
    for kind, expected in (("amd-avx512", fused), ("other", plain)):
        row = PROCESSORS[kind]
        monkeypatch.setattr("transformer.training.precision.processor", lambda row=row: row)
        auto = loss_function(config(0.1, 5, "auto"), hidden, weight, target)
        torch.testing.assert_close(auto, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("chunk", [0, 4])
@pytest.mark.parametrize(("rows", "scale"), [(ROWS, 1e4), (0, 1.0)])
def test_large_logits_and_no_rows_are_finite(chunk: int, rows: int, scale: float) -> None:
    hidden, weight, target = inputs(rows)
    loss = loss_function(config(chunk=chunk), hidden * scale, weight, target)
    gradients = torch.autograd.grad(loss, (hidden, weight))
    assert all(torch.isfinite(value).all() for value in (loss, *gradients))
    assert rows or (loss == 0 and not gradients[1].any())


def test_the_fused_form_never_holds_all_logits() -> None:
    hidden, weight, target = inputs()
    seen = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = function(*args, **(kwargs or {}))
            # The transposed weight has as many columns, and WIDTH rows.
            if isinstance(result, Tensor) and result.shape[1:] == (VOCAB,) and len(result) != WIDTH:
                seen.append(len(result))
            return result

    with Watch():
        loss_function(config(chunk=4), hidden, weight, target)
    assert max(seen) == 4
