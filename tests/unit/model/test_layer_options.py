"""The blocks around the attention against their papers' equations, with numbers done by hand."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.model.models import portable, tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.checkpoint.checkpoint import PORTABLE, load_checkpoint, write_payload
from transformer.model.layers.residual import PostNorm, PreNorm, SandwichNorm
from transformer.model.transformer import Transformer

SOURCE = torch.tensor([[7, 8, 9, 3], [5, 3, 0, 0]])
TARGET = torch.tensor([[2, 4, 6], [2, 9, 0]])


def outputs(model: Transformer) -> Tensor:
    return model.logits(model(SOURCE, TARGET))


def row(*numbers: float) -> Tensor:
    return torch.tensor([[numbers]])


def test_each_order_by_hand() -> None:
    def sublayer(x: Tensor) -> Tensor:
        return x + x**2

    # The layer norm of any two numbers that grow is (-1, 1).
    twice, root, outer = nn.LayerNorm(2, eps=0.0), nn.RMSNorm(2, eps=0.0), nn.RMSNorm(2, eps=0.0)
    nn.init.constant_(twice.weight, 2.0)
    nn.init.constant_(outer.weight, 10.0)
    stream = row(1.0, 3.0)
    # Norm: (-2, 2); sublayer: (2, 6); sum: (3, 9).
    assert_close(PreNorm(twice, 0.0)(stream, sublayer), row(3.0, 9.0))
    # The outer norm divides (2, 6) by its root mean square, sqrt(20), and takes it ten times.
    sandwich = row(1 + 20 / math.sqrt(20), 3 + 60 / math.sqrt(20))
    assert_close(SandwichNorm(twice, outer, 0.0)(stream, sublayer), sandwich)
    # Sublayer: (2, 12); sum: (3, 15), of root mean square sqrt(117); norm.
    assert_close(PostNorm(root, 0.0)(stream, sublayer), row(3.0, 15.0) / math.sqrt(117))


def shared_parts(model: Transformer) -> set[str]:
    """The children of a layer that are one object in both layers of their stack."""
    return {
        name
        for first, second in (model.encoder.layers, model.decoder.layers)
        for name, child in first.named_children()
        if child is getattr(second, name)
    }


ATTENTION = {"attention", "self_attention", "cross_attention"}
NORMS = {"attention_residual", "self_residual", "cross_residual", "feed_forward_residual"}


@pytest.mark.parametrize(
    ("share", "parts"),
    [
        ("none", set()),
        ("attention", ATTENTION),
        ("feed_forward", {"feed_forward"}),
        ("all", ATTENTION | NORMS | {"feed_forward"}),
    ],
)
def test_what_two_layers_share(share: str, parts: set[str]) -> None:
    assert shared_parts(tiny_transformer(share_layers=share)) == parts


@pytest.mark.parametrize("share", ["attention", "feed_forward", "all"])
def test_a_shared_model_is_stored_and_found_again(tmp_path: Path, share: str) -> None:
    model = tiny_transformer(share_layers=share)
    weights = {f"model.{name}": w for name, w in model.state_dict().items()}
    part = portable(model.config, {}, {"task": "translation"})
    write_payload({"state_dict": weights, PORTABLE: part}, tmp_path / "x.ckpt")
    loaded = load_checkpoint(tmp_path / "x.ckpt").model
    assert shared_parts(loaded) == shared_parts(model)
    assert torch.equal(outputs(loaded), outputs(model))
    # A shared weight computes as its copies.
    shared, apart = tiny_transformer(share_layers=share), tiny_transformer(share_layers="none")
    apart.load_state_dict(shared.state_dict())
    assert torch.equal(outputs(shared), outputs(apart))
    for model in (shared, apart):
        outputs(model).logsumexp(-1).sum().backward()
    copies = dict(apart.named_parameters())
    names = list(shared.named_parameters(remove_duplicate=False))
    for weight in shared.parameters():
        # The tied table is one weight in either model, and listed once in the other.
        gradients = [copies[name].grad for name, w in names if w is weight and name in copies]
        assert_close(weight.grad, sum(gradients))  # type: ignore[arg-type]


def test_layers_are_dropped_in_training_only() -> None:
    model = tiny_transformer(layer_drop=0.25, encoder_layers=5, decoder_layers=5)
    layers = [*model.encoder.layers, *model.decoder.layers]
    ran = set[nn.Module]()
    for layer in layers:
        layer.register_forward_hook(lambda layer, *_: ran.add(layer))
    whole = tiny_transformer(encoder_layers=5, decoder_layers=5)
    assert torch.equal(outputs(model), outputs(whole)) and len(ran) == 10
    torch.manual_seed(1)
    model.train()
    counts = torch.zeros(2)
    for _ in range(100):
        ran.clear()
        outputs(model)
        counts += torch.tensor([len(ran & {*stack}) for stack in (layers[:5], layers[5:])])
    # 500 draws a stack: five standard deviations are 48.
    assert (counts - 375).abs().max() < 48
