"""The blocks around the attention against their papers' equations, with numbers done by hand."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.model.models import portable, tiny_config, tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.checkpoint.checkpoint import PORTABLE, load_checkpoint, write_payload
from transformer.model.build import build_feed_forward
from transformer.model.layers.norm import build_norm
from transformer.model.layers.residual import PostNorm, PreNorm, SandwichNorm
from transformer.model.transformer import Transformer

SOURCE = torch.tensor([[7, 8, 9, 3], [5, 3, 0, 0]])
TARGET = torch.tensor([[2, 4, 6], [2, 9, 0]])


def outputs(model: Transformer) -> Tensor:
    return model.logits(model(SOURCE, TARGET))


def test_norms_by_hand() -> None:
    rms, layer = (build_norm(tiny_config(norm=n, d_model=2, num_heads=1)) for n in ("rms", "layer"))
    # sqrt((9 + 16) / 2) = 3.535534; nothing is subtracted, there is no bias.
    assert_close(rms(row(3.0, 4.0)), row(0.848528, 1.131371))
    [gain] = rms.parameters()
    nn.init.constant_(gain, 10.0)
    assert_close(rms(row(3.0, -4.0)), row(8.48528, -11.31371))
    assert_close(layer(row(3.0, 5.0)), row(-0.999995, 0.999995))


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


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


ACTIVATIONS = {"relu": lambda x: max(x, 0.0), "gelu": gelu, "geglu": gelu}
ACTIVATIONS["swiglu"] = lambda x: x / (1 + math.exp(-x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@torch.no_grad()
def test_a_feed_forward_block_is_its_formula(activation: str) -> None:
    torch.manual_seed(1)
    block = build_feed_forward(tiny_config(activation=activation)).double()
    weights = {name: nn.init.normal_(w) for name, w in block.named_parameters()}
    hidden = torch.randn(2, 3, 16, dtype=torch.float64)

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    gated = activation in ("swiglu", "geglu")
    widened = linear("gate" if gated else "inner", hidden).apply_(ACTIVATIONS[activation])
    widened = widened * linear("inner", hidden) if gated else widened
    assert_close(block(hidden), linear("outer", widened))


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
    ("share", "parts", "attentions", "feed_forwards", "norms"),
    [
        ("none", set(), 6, 4, 10),
        ("attention", ATTENTION, 3, 4, 10),
        ("feed_forward", {"feed_forward"}, 6, 2, 10),
        ("all", ATTENTION | NORMS | {"feed_forward"}, 3, 2, 5),
    ],
)
def test_what_two_layers_share(
    share: str, parts: set[str], attentions: int, feed_forwards: int, norms: int
) -> None:
    model = tiny_transformer(share_layers=share)
    assert shared_parts(model) == parts
    # The stacks have nothing in common, nor have the two attentions of a decoder layer.
    assert not {*model.encoder.parameters()} & {*model.decoder.parameters()}
    assert model.decoder.layers[0].self_attention is not model.decoder.layers[0].cross_attention
    # One table of 24 rows, and the norm at the end of each stack.
    assert sum(parameter.numel() for parameter in model.parameters()) == (
        24 * 16
        + attentions * 4 * (16 * 16 + 16)
        + feed_forwards * (16 * 32 + 32 + 32 * 16 + 16)
        + (norms + 2) * 2 * 16
    )


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


def watched(model: Transformer) -> tuple[list[nn.Module], set[nn.Module]]:
    """The layers, and a set that will hold those that have computed."""
    layers, ran = [*model.encoder.layers, *model.decoder.layers], set[nn.Module]()
    for layer in layers:
        layer.register_forward_hook(lambda layer, *_: ran.add(layer))
    return layers, ran


def test_layers_are_dropped_in_training_only() -> None:
    model = tiny_transformer(layer_drop=0.25, encoder_layers=5, decoder_layers=5)
    layers, ran = watched(model)
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
    # The seed decides what is dropped, and the rest learns.
    model = tiny_transformer(layer_drop=0.5).train()
    layers, ran = watched(model)
    found: dict[int, tuple[set[nn.Module], Tensor]] = {}
    for seed in [*range(16), *range(16)]:
        ran.clear()
        model.zero_grad()
        torch.manual_seed(seed)
        output = outputs(model)
        output.logsumexp(-1).sum().backward()
        before = found.setdefault(seed, (set(ran), output))
        assert before[0] == ran and torch.equal(before[1], output)
        for number, layer in enumerate(layers):
            # What the encoder computes is of use to the layers of the decoder alone.
            learns = layer in ran and (number >= 2 or not ran.isdisjoint(layers[2:]))
            assert all((weight.grad is not None) == learns for weight in layer.parameters())
        assert model.projection.weight.grad is not None
    assert len({frozenset(kept) for kept, _ in found.values()}) >= 6
