"""The training step that passes over each batch twice, and the tokens cut from the second pass."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.losses import loss_config
from tests.helpers.training.updates import translation_module
from transformer.data.batching.batch import collate
from transformer.data.tokenization.tokenizer import BOS, EOS, PAD, UNK
from transformer.tasks.translation_module import TranslationModule
from transformer.training.losses.consistency import consistency_loss, cutting, drawn_cut
from transformer.training.optimization.activation_checkpointing import recompute_layers

BATCH = collate([[5, 6, 7, 4], [7]], [[8, 9, 10], [11]])
R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}
SIMCUT = {"consistency": "simcut", "consistency_weight": 3.0, "cut": 0.3}


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


def test_simcut_compares_the_whole_with_what_is_cut() -> None:
    trained = module(SIMCUT)
    loss, sums = step(trained)
    expected, logged = step(module())
    assert_close(sums["loss"], logged["loss"])
    assert loss > expected
    # The same draws, in two calls of the model.
    torch.manual_seed(3)
    rows = slice(BATCH.size, None)
    drawn = (drawn_cut(side.repeat(2, 1), 0.3) for side in (BATCH.source, BATCH.target_input))
    cut = [each[rows] for each in drawn if each is not None]
    assert all(each.any() for each in cut)
    whole = trained.predictions(BATCH)
    with cutting(trained.model, *cut):
        part = trained.predictions(BATCH)
    hidden = torch.stack([whole[0], part[0]])
    weight = trained.model.projection.weight
    by_hand = consistency_loss(trained.loss, hidden, weight, whole[1])
    assert_close(loss, by_hand.loss.detach())
    assert_close(sums["consistency"], by_hand.divergence)


@pytest.mark.parametrize("kind", [R_DROP, SIMCUT])
def test_layers_computed_twice_leave_the_same_gradient(kind: dict[str, Any]) -> None:
    settings = {"dropout": 0.2, "layer_drop": 0.2, "source_token_dropout": 0.2}
    kept, forgetful = module(kind, **settings), module(kind, **settings)
    recompute_layers(forgetful.model)
    step(kept), step(forgetful)
    mine, expected = gradients(forgetful), gradients(kept)
    assert mine.keys() == expected.keys()
    assert all(torch.equal(mine[name], gradient) for name, gradient in expected.items())


@pytest.mark.parametrize("kind", [R_DROP, SIMCUT])
def test_validation_passes_once(kind: dict[str, Any]) -> None:
    found = []
    for loss in (None, kind):
        validated = module(loss, dropout=0.2, source_token_dropout=0.2).eval()
        validated.validation_step(BATCH, 0)
        found.append(validated.means.over_all_ranks())
    assert found[0] == found[1]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [R_DROP, SIMCUT])
def test_training_with_it_lowers_the_plain_loss(kind: dict[str, Any]) -> None:
    trained = module(kind | {"label_smoothing": 0.0}, dropout=0.1, target_token_dropout=0.1)
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


TOKENS = torch.tensor([[5, 6, 7, 3, 0], [8, 9, 3, 0, 0]]).repeat(2, 1)


def test_the_share_cut_is_the_probability_and_only_text_is() -> None:
    torch.manual_seed(1)
    tokens = torch.randint(0, 9, (400, 500))
    cut = drawn_cut(tokens, 0.05)
    assert cut is not None and not cut[:200].any()
    cut, tokens = cut[200:], tokens[200:]
    for control in (PAD, BOS, EOS):
        assert not cut[tokens == control].any()
    # Text, the unknown included; five standard deviations of the draw.
    for subword in (UNK, 4, 8):
        here = cut[tokens == subword].double()
        assert abs(here.mean().item() - 0.05) < 5 * (0.05 * 0.95 / len(here)) ** 0.5
    state = torch.random.get_rng_state()
    assert drawn_cut(TOKENS, 0.0) is None
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("tie", ["all", "none"])
def test_of_a_token_that_is_cut_the_position_alone_is_left(tie: str) -> None:
    model = tiny_transformer(tie_embeddings=tie)
    whole = [side(TOKENS) for side in (model.source_embedding, model.target_embedding)]
    source, target = torch.zeros_like(TOKENS).bool(), torch.zeros_like(TOKENS).bool()
    source[2, 1] = target[3, 0] = True
    with cutting(model, source, target):
        parts = [side(TOKENS) for side in (model.source_embedding, model.target_embedding)]
    positions = model.source_embedding.positions
    assert positions is not None
    for before, after, cut in zip(whole, parts, (source, target), strict=True):
        assert torch.equal(after[~cut], before[~cut])
        assert torch.equal(after[cut], positions(5)[cut.nonzero()[:, 1]])
    again = [side(TOKENS) for side in (model.source_embedding, model.target_embedding)]
    assert all(map(torch.equal, again, whole))


def test_the_model_is_whole_again_after_an_error() -> None:
    model = tiny_transformer()
    whole = model.source_embedding(TOKENS)
    everything = torch.ones_like(TOKENS).bool()
    with pytest.raises(torch.OutOfMemoryError), cutting(model, everything, None):
        raise torch.OutOfMemoryError
    assert torch.equal(model.source_embedding(TOKENS), whole)
