"""Packed batches teach a model the same as padded ones: loss, gradient, and ten updates."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.helpers.losses import loss_config
from tests.helpers.models import tiny_config, tiny_transformer
from tests.helpers.packing import attend_as_on_gpu, can_pack
from tests.helpers.tolerance import assert_close
from tests.helpers.updates import module_settings, translation_module
from tests.unit.model.test_options import OTHERS
from transformer.data.batching.batch import Batch, collate
from transformer.data.batching.packed_batch import pack
from transformer.model.single_stack import build_single_stack
from transformer.tasks.language_modelling import LanguageModule
from transformer.training.losses import token_cutoff
from transformer.training.optimization.activation_checkpointing import recompute_layers
from transformer.training.step.update_module import UpdateModule

SOURCES = [[7, 8, 9, 10, 11, 6, 7], [5], [6, 9, 9], [], [22, 4, 8, 8]]
TARGETS = [[6, 8, 4], [9, 9, 5, 9, 9, 21, 4, 4], [4], [7, 7], [10, 11]]
PADDED = collate(SOURCES, TARGETS)
# The second is full on one side, and has padding for several sentences on the other.
PACKED = (pack(PADDED, 48), pack(PADDED))

R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}
SIMCUT = {"consistency": "simcut", "consistency_weight": 3.0, "cut": 0.3}
RANDOM = ("dropout", "activation_dropout", "source_token_dropout", "target_token_dropout")
# Batches are padded with 0; what is drawn at random differs between the two.
ALLOWED = [
    model
    for model in OTHERS
    if can_pack(**model.values[0])
    and not {*RANDOM, "attention_dropout", "layer_drop", "pad"} & {*model.values[0]}
]


class Learnt(NamedTuple):
    loss: Tensor
    gradient: dict[str, Tensor]


def learn(module: UpdateModule, batch: Batch) -> Learnt:
    """Loss and gradient, by the random numbers of a seed."""
    module.train().zero_grad()
    torch.manual_seed(4)
    loss, tokens, _ = module.micro_loss(batch)
    loss.backward()
    assert tokens == PADDED.target_tokens
    named = module.model.named_parameters()
    return Learnt(loss.detach(), {n: p.grad.clone() for n, p in named if p.grad is not None})


def assert_same(packed: Learnt, padded: Learnt) -> None:
    assert_close(packed.loss, padded.loss)
    assert packed.gradient.keys() == padded.gradient.keys()
    for name, gradient in padded.gradient.items():
        assert_close(packed.gradient[name], gradient)


def test_most_models_can_be_packed() -> None:
    names = {str(model.id) for model in ALLOWED}
    assert {"positions=rotary", "positions=learned", "num_kv_heads=1", "norm=rms"} < names
    assert not names & {"positions=alibi", "pattern=sliding", "attention=eager"}


@pytest.mark.parametrize("changes", ALLOWED)
def test_every_model(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"head_dim": 8} | changes
    module = translation_module(tiny_transformer(**changes))
    expected = learn(module, PADDED)
    for packed in PACKED:
        assert_same(learn(module, packed), expected)
        with monkeypatch.context() as gpu:
            attend_as_on_gpu(gpu, plain=True)
            assert_same(learn(module, packed), expected)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_ten_updates(positions: str) -> None:
    losses, weights = [], []
    for batch in (PADDED, PACKED[0]):
        module = translation_module(tiny_transformer(head_dim=8, positions=positions))
        # Some gradients are nothing but rounding, which Adam would make as large as the others.
        adam = torch.optim.Adam(module.model.parameters(), lr=1e-3, eps=1e-3)
        losses.append(torch.stack([learn_and_step(module, adam, batch) for _ in range(10)]))
        weights.append(torch.cat([p.detach().flatten() for p in module.model.parameters()]))
    assert losses[0][9] < losses[0][0] - 0.5
    assert_close(losses[1], losses[0])
    assert_close(weights[1], weights[0])


def learn_and_step(module: UpdateModule, adam: torch.optim.Adam, batch: Batch) -> Tensor:
    loss = learn(module, batch).loss
    adam.step()
    return loss


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("loss", [{"chunk": 3}, R_DROP, R_DROP | {"chunk": 3}, SIMCUT])
def test_every_loss(loss: dict[str, Any], recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_eights(tokens: Tensor, probability: float) -> Tensor:
        """In the second pass, in place of tokens drawn at random."""
        return (tokens == 8) & (torch.arange(len(tokens)) >= len(tokens) // 2)[:, None]

    monkeypatch.setattr(token_cutoff, "drawn_cut", cut_eights)
    model = tiny_transformer(positions="rotary", head_dim=8)
    module = translation_module(model, loss=loss_config(**loss))
    if recompute:
        recompute_layers(module.model, module.guided_attention)
    expected = learn(module, PADDED)
    assert_same(learn(module, PACKED[0]), expected)
    attend_as_on_gpu(monkeypatch, plain=True)
    assert_same(learn(module, PACKED[0]), expected)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_language_model(positions: str) -> None:
    model = build_single_stack(tiny_config(positions=positions), causal=True)
    module = LanguageModule(model, **module_settings())
    assert_same(learn(module, PACKED[0]), learn(module, PADDED))
