"""The training step that passes over each batch twice."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.losses import loss_config
from tests.helpers.training.updates import translation_module
from transformer.data.batching.batch import collate
from transformer.tasks.translation_module import TranslationModule
from transformer.training.optimization.activation_checkpointing import recompute_layers

BATCH = collate([[5, 6, 7, 4], [7]], [[8, 9, 10], [11]])
R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}


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


def test_layers_computed_twice_leave_the_same_gradient() -> None:
    settings = {"dropout": 0.2, "layer_drop": 0.2, "source_token_dropout": 0.2}
    kept, forgetful = module(R_DROP, **settings), module(R_DROP, **settings)
    recompute_layers(forgetful.model)
    step(kept), step(forgetful)
    mine, expected = gradients(forgetful), gradients(kept)
    assert mine.keys() == expected.keys()
    assert all(torch.equal(mine[name], gradient) for name, gradient in expected.items())


def test_validation_passes_once() -> None:
    found = []
    for loss in (None, R_DROP):
        validated = module(loss, dropout=0.2, source_token_dropout=0.2).eval()
        validated.validation_step(BATCH, 0)
        found.append(validated.means.over_all_ranks())
    assert found[0] == found[1]


@pytest.mark.thorough
def test_training_with_it_lowers_the_plain_loss() -> None:
    trained = module(R_DROP | {"label_smoothing": 0.0}, dropout=0.1, target_token_dropout=0.1)
    optimizer = torch.optim.Adam(trained.parameters(), 1e-2)
    validated = []
    for updates in (0, 60):
        for update in range(updates):
            step(trained.train(), seed=update)
            optimizer.step()
        trained.eval().validation_step(BATCH, 0)
        validated.append(trained.means.over_all_ranks()["val/loss"])
    before, after = validated
    assert after < 1 < 2.5 < before
