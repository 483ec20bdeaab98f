"""Guided alignment: the formula, the head it belongs to, and the step that it is part of."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.model.models import tiny_config, tiny_transformer
from tests.helpers.model.tolerance import assert_close
from tests.helpers.training.updates import loss_config, translation_module
from transformer.common.errors import InputError
from transformer.data.batching.batch import collate
from transformer.decoding.alignment import guided_head
from transformer.decoding.forced_decoding import attention_maps
from transformer.model.build import build_transformer
from transformer.model.head_masks import HeadName
from transformer.model.transformer import Transformer
from transformer.tasks.translation import TranslationModule
from transformer.training.losses.guided_alignment import alignment_loss, watching

LINKED = [np.array([[1, 0], [0, 1], [0, 0]], dtype=bool), np.array([[1]], dtype=bool)]
BATCH = collate([[5, 6], [7]], [[8, 9, 10], [11]], LINKED)
UNLINKED = replace(BATCH, alignment=None)


def module(model: Transformer | None = None, **changes: Any) -> TranslationModule:
    return translation_module(model, loss=loss_config(**changes))


def test_the_formula() -> None:
    """Equation 5 of Garg et al., by hand; the token without a link does not count."""
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]]])
    links = torch.tensor([[[True, True, False], [False, False, False], [False, False, True]]])
    loss, linked = alignment_loss(weights, links)
    expected = -(0.5 * np.log(0.5) + 0.5 * np.log(0.25)) - np.log(0.1)
    assert_close(loss, torch.tensor(expected, dtype=torch.float32))
    assert linked == 2
    elsewhere = torch.tensor([[[1.0, 0.0]]], requires_grad=True)
    loss, _ = alignment_loss(elsewhere, torch.tensor([[[False, True]]]))
    (gradient,) = torch.autograd.grad(loss, elsewhere)
    assert torch.isfinite(loss) and torch.isfinite(gradient).all()


def test_the_guided_head() -> None:
    deep = tiny_config(decoder_layers=4)
    loss = loss_config(alignment_weight=0.1)
    assert guided_head(loss, deep) == HeadName("cross", 2, 0)
    assert guided_head(loss, tiny_config(decoder_layers=1)) == HeadName("cross", 0, 0)
    assert guided_head(replace(loss, alignment_weight=0.0), deep) is None
    chosen = replace(loss, alignment_layer=3, alignment_head=1)
    assert guided_head(chosen, deep) == HeadName("cross", 3, 1)


def test_a_head_that_does_not_stay_or_exist_is_refused() -> None:
    model = tiny_transformer(layer_drop=0.1, share_layers="feed_forward")
    module(model, alignment_weight=0.5)
    for changes in ({"alignment_layer": 2}, {"alignment_head": 4}, {"alignment_head": -1}):
        [(name, value)] = changes.items()
        with pytest.raises(InputError, match=f"loss.{name}={value}"):
            module(model, alignment_weight=0.5, **changes)
    with pytest.raises(InputError, match="share_layers=none"):
        module(tiny_transformer(layer_drop=0.1, share_layers="all"), alignment_weight=0.5)


@pytest.mark.parametrize("sharing", ["none", "all"])
def test_the_head_that_is_watched_is_that_of_the_maps(sharing: str) -> None:
    model = tiny_transformer(share_layers=sharing, decoder_layers=3, encoder_layers=3)
    with watching(model, HeadName("cross", 1, 2)) as looked:
        model(BATCH.source, BATCH.target_input)
    [weights] = looked
    maps = attention_maps(model, BATCH.source, BATCH.target_input)
    assert_close(weights, maps["cross"][1][:, 2])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        dropping = build_transformer(tiny_config(layer_drop=0.999)).train()
        with watching(dropping, HeadName("cross", 0, 0)) as looked:
            dropping(BATCH.source, BATCH.target_input)
    assert looked == []


def test_the_step_adds_the_weighted_loss_and_learns_from_it() -> None:
    plain, guided = module(), module(alignment_weight=0.5)
    alone, tokens, _ = plain.micro_loss(UNLINKED)
    together, same, sums = guided.micro_loss(BATCH)
    maps = attention_maps(plain.model, BATCH.source, BATCH.target_input)["cross"]
    assert BATCH.alignment is not None
    expected, linked = alignment_loss(maps[0][:, 0], BATCH.alignment)
    assert same == tokens == 6
    assert_close(together, alone + 0.5 * expected)
    assert_close(sums["loss"], alone)
    assert_close(sums["alignment"], torch.stack([expected, linked]))
    together.backward()
    alone.backward()
    ours = guided.model.decoder.layers[0].cross_attention.query.weight.grad
    theirs = plain.model.decoder.layers[0].cross_attention.query.weight.grad
    assert not torch.allclose(ours, theirs)
