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


def test_r_drop_by_hand() -> None:
    """Liang et al., equations 2 to 4, halved: so it is a loss of as many tokens as without."""
    hidden, weight, target = inputs()
    p, q = (hidden @ weight.T).log_softmax(-1)
    divergence = ((p.exp() * (p - q)).sum() + (q.exp() * (q - p)).sum()) / 2
    entropies = [cross_entropy(each, weight, target, 0.1) for each in hidden]
    result = r_drop_loss(config(), hidden, weight, target)
    assert_close(result.loss, (sum(entropies) + 5.0 * divergence) / 2)
    assert_close(result.cross_entropy, sum(entropies) / 2)
    assert_close(result.divergence, divergence)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 4, 45, 46, 512])
def test_fused_equals_plain_in_value_and_gradient(chunk: int, smoothing: float) -> None:
    hidden, weight, target = inputs()
    plain = plain_r_drop_loss(hidden, weight, target, smoothing, 0.7)
    settings = config(chunk, label_smoothing=smoothing, consistency_weight=0.7)
    fused = r_drop_loss(settings, hidden, weight, target)
    for value, formula in zip(fused, plain, strict=True):
        assert_close(value, formula)
    for result in (plain, fused):
        assert result.loss.requires_grad
        assert not result.cross_entropy.requires_grad and not result.divergence.requires_grad
    upstream = torch.tensor(0.7)
    expected = torch.autograd.grad(plain.loss, (hidden, weight), upstream)
    actual = torch.autograd.grad(fused.loss, (hidden, weight), upstream)
    for gradient, formula in zip(actual, expected, strict=True):
        assert_close(gradient, formula)


def test_gradcheck() -> None:
    hidden, weight, target = inputs(rows=5, dtype=torch.float64)

    def loss(*tensors: Tensor) -> Tensor:
        return r_drop_loss(config(4), *tensors, target).loss

    assert torch.autograd.gradcheck(loss, (hidden, weight))


@pytest.mark.parametrize("chunk", [0, 4])
@pytest.mark.parametrize(("rows", "scale"), [(ROWS, 1e4), (0, 1.0)])
def test_large_logits_and_no_rows_are_finite(chunk: int, rows: int, scale: float) -> None:
    hidden, weight, target = inputs(rows)
    result = r_drop_loss(config(chunk), hidden * scale, weight, target)
    gradients = torch.autograd.grad(result.loss, (hidden, weight))
    assert all(torch.isfinite(value).all() for value in (*result, *gradients))
    assert rows or (result.loss == result.divergence == 0 and not gradients[1].any())


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


@pytest.mark.parametrize("chunk", [0, 4])
def test_without_dropout_r_drop_is_the_plain_loss(chunk: int) -> None:
    plain, twice = module({"chunk": chunk}), module(R_DROP | {"chunk": chunk})
    loss, sums = step(twice)
    expected, logged = step(plain)
    assert_close(loss, expected)
    assert_close(sums["loss"], logged["loss"])
    assert_close(sums["consistency"], torch.zeros(()))
    pairs = zip(twice.model.parameters(), plain.model.parameters(), strict=True)
    for weight, same in pairs:
        assert_close(weight.grad, same.grad)
    # Validation passes once.
    values = []
    for trained in (plain, twice):
        trained.eval().validation_step(BATCH, 0)
        values.append(trained.means.over_all_ranks())
    assert values[0] == values[1]


@pytest.mark.parametrize("dropout", ["dropout", "source_token_dropout", "target_token_dropout"])
def test_the_passes_of_r_drop_draw_other_dropout(dropout: str) -> None:
    trained = module(R_DROP, **{dropout: 0.4})
    loss, sums = step(trained)
    assert sums["consistency"] > 1e-3
    assert_close(loss, sums["loss"] + 5.0 / 2 * sums["consistency"])
    assert torch.equal(step(trained)[0], loss)
    assert not torch.equal(step(trained, seed=4)[0], loss)
