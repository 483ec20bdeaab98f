"""Two passes that have to predict alike: the formulas, the fused form, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.updates import loss_config, translation_module
from transformer.data.batching.batch import collate
from transformer.settings.training import LossConfig
from transformer.tasks.translation import TranslationModule
from transformer.training.losses.cross_entropy import cross_entropy
from transformer.training.losses.r_drop import plain_r_drop_loss, r_drop_loss

ROWS, WIDTH, VOCAB = 23, 8, 31
ALPHA = 5.0
R_DROP = {"consistency": "r_drop", "consistency_weight": ALPHA}


def inputs(rows: int = ROWS, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(2, rows, WIDTH, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCAB, WIDTH, generator=generator, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(0, VOCAB, (rows,), generator=generator)


def config(chunk: int = 0, **changes: Any) -> LossConfig:
    return loss_config(**({"chunk": chunk, **R_DROP} | changes))


def predictions(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    p, q = (hidden @ weight.T).log_softmax(-1)
    return p, q


def test_r_drop_by_hand() -> None:
    """Liang et al., equations 2 to 4, halved: so it is a loss of as many tokens as without."""
    hidden, weight, target = inputs()
    p, q = predictions(hidden, weight)
    divergence = ((p.exp() * (p - q)).sum() + (q.exp() * (q - p)).sum()) / 2
    entropies = [cross_entropy(each, weight, target, 0.1) for each in hidden]
    found = r_drop_loss(config(), hidden, weight, target)
    assert_close(found.loss, (sum(entropies) + 5.0 * divergence) / 2)
    assert_close(found.cross_entropy, sum(entropies) / 2)
    assert_close(found.divergence, divergence)
    # The other way to write the divergence.
    assert_close(found.divergence, ((p.exp() - q.exp()) * (p - q)).sum() / 2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    ("chunk", "rows"), [*((chunk, ROWS) for chunk in (1, 4, 45, 46, 47, 512)), (512, 150)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_equals_plain_in_value_and_gradient(
    chunk: int, rows: int, smoothing: float, dtype: torch.dtype
) -> None:
    for alpha in (0.7, ALPHA):
        hidden, weight, target = inputs(rows, dtype)
        plain = plain_r_drop_loss(hidden, weight, target, smoothing, alpha)
        settings = config(chunk, label_smoothing=smoothing, consistency_weight=alpha)
        mine = r_drop_loss(settings, hidden, weight, target)
        for ours, formula in zip(mine, plain, strict=True):
            assert_close(ours, formula)
        for found in (plain, mine):
            assert found.loss.requires_grad
            assert not found.cross_entropy.requires_grad and not found.divergence.requires_grad
        upstream = torch.tensor(0.7, dtype=dtype)
        expected = torch.autograd.grad(plain.loss, (hidden, weight), upstream)
        for gradient, formula in zip(
            torch.autograd.grad(mine.loss, (hidden, weight), upstream), expected, strict=True
        ):
            assert_close(gradient, formula)


def test_gradcheck() -> None:
    hidden, weight, target = inputs(rows=5, dtype=torch.float64)

    def loss(*tensors: Tensor) -> Tensor:
        return r_drop_loss(config(4), *tensors, target).loss

    assert torch.autograd.gradcheck(loss, (hidden, weight))


@pytest.mark.parametrize("chunk", [6, 512])
def test_fused_in_bfloat16_is_near(chunk: int) -> None:
    hidden, weight, target = inputs()
    plain = plain_r_drop_loss(hidden, weight, target, 0.1, ALPHA)
    settings = config(chunk, bfloat16=True)
    mine = r_drop_loss(settings, hidden, weight, target)
    for ours, formula in zip(mine, plain, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, formula, rtol=1e-2, atol=0)
    expected = torch.autograd.grad(plain.loss, (hidden, weight))
    actual = torch.autograd.grad(mine.loss, (hidden, weight))
    for gradient, formula in zip(actual, expected, strict=True):
        assert gradient.dtype == torch.float32
        assert 1e-5 < ((gradient - formula).norm() / formula.norm()).item() < 1e-2
    with torch.autocast("cpu", torch.bfloat16):
        under = r_drop_loss(config(chunk), hidden, weight, target)
    assert torch.equal(under.loss, mine.loss)


@pytest.mark.parametrize("chunk", [0, 4])
def test_equal_passes_do_not_diverge(chunk: int) -> None:
    """Then the loss and its gradient are those of one pass, whatever alpha is."""
    hidden, weight, target = inputs()
    once = hidden[0].detach().requires_grad_()
    loss = cross_entropy(once, weight, target, 0.1)
    found = r_drop_loss(config(chunk), torch.stack([once, once]), weight, target)
    assert_close(found.divergence, torch.zeros(()))
    assert_close(found.loss, loss)
    expected = torch.autograd.grad(loss, (once, weight))
    for mine, other in zip(torch.autograd.grad(found.loss, (once, weight)), expected, strict=True):
        assert_close(mine, other)


def test_a_divergence_is_never_negative() -> None:
    hidden, weight, target = inputs(dtype=torch.float64)
    for near in (1.0, 1e-3, 1e-6):
        close = torch.stack([hidden[0], hidden[0] + near * hidden[1]])
        assert r_drop_loss(config(4), close, weight, target).divergence > 0


@pytest.mark.parametrize("chunk", [0, 4])
@pytest.mark.parametrize(("rows", "scale"), [(ROWS, 1e4), (0, 1.0)])
def test_large_logits_and_no_rows_are_finite(chunk: int, rows: int, scale: float) -> None:
    hidden, weight, target = inputs(rows)
    found = r_drop_loss(config(chunk), hidden * scale, weight, target)
    gradients = torch.autograd.grad(found.loss, (hidden, weight))
    assert all(torch.isfinite(value).all() for value in (*found, *gradients))
    assert rows or (found.loss == found.divergence == 0 and not gradients[1].any())


BATCH = collate([[5, 6, 7, 4], [7]], [[8, 9, 10], [11]])


def module(loss: dict[str, Any] | None = None, **changes: Any) -> TranslationModule:
    made = translation_module(tiny_transformer(**changes), loss=loss_config(**(loss or {})))
    return made.train()


def step(trained: TranslationModule, seed: int = 3) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and what is logged, after the gradient has been left."""
    torch.manual_seed(seed)
    loss, tokens, sums = trained.micro_loss(BATCH)
    assert tokens == BATCH.target_tokens == 6
    trained.zero_grad()
    loss.backward()
    return loss.detach(), sums


def gradients(trained: TranslationModule) -> dict[str, Tensor]:
    return {n: p.grad for n, p in trained.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("chunk", [0, 4])
def test_without_dropout_r_drop_is_the_plain_loss(chunk: int) -> None:
    plain, twice = module({"chunk": chunk}), module(R_DROP | {"chunk": chunk})
    (loss, sums), (expected, logged) = step(twice), step(plain)
    assert_close(loss, expected)
    assert_close(sums["loss"], logged["loss"])
    assert_close(sums["consistency"], torch.zeros(()))
    mine, other = gradients(twice), gradients(plain)
    assert mine.keys() == other.keys()
    for name, gradient in other.items():
        assert_close(mine[name], gradient)


@pytest.mark.parametrize("dropout", ["dropout", "source_token_dropout", "target_token_dropout"])
def test_the_passes_of_r_drop_draw_other_dropout(dropout: str) -> None:
    trained = module(R_DROP, **{dropout: 0.4})
    loss, sums = step(trained)
    assert sums["consistency"] > 1e-3
    assert_close(loss, sums["loss"] + 5.0 / 2 * sums["consistency"])
    assert torch.equal(step(trained)[0], loss)
    assert not torch.equal(step(trained, seed=4)[0], loss)


def test_validation_passes_once() -> None:
    found = []
    for loss in (None, R_DROP):
        validated = module(loss, dropout=0.2, source_token_dropout=0.2).eval()
        validated.validation_step(BATCH, 0)
        found.append(validated.means.over_all_ranks())
    assert found[0] == found[1]
