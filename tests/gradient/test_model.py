"""Analytic gradients against differences, in float64."""

from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.updates import loss_config
from transformer.model.attention.attention_context import AttentionContext
from transformer.model.attention.kernels.fused import attend_fused
from transformer.model.attention.masks import causal_mask
from transformer.model.attention.scaled_dot_product import attend
from transformer.training.losses.cross_entropy import cross_entropy, loss_function


def rand(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)


BLIND = torch.tensor([[[[True, False, True, True], [False] * 4, [False, True, False, False]]]])
"""A mask whose second query may attend to nothing."""


@pytest.mark.parametrize("mask", [None, causal_mask(3, 4), BLIND])
def test_attention(mask: torch.Tensor | None) -> None:
    inputs = (rand(2, 2, 3, 2), rand(2, 2, 4, 2), rand(2, 2, 4, 2))
    assert gradcheck(lambda q, k, v: attend(q, k, v, mask)[0], inputs)
    assert gradcheck(lambda q, k, v: attend_fused(q, k, v, mask), inputs)


@pytest.mark.parametrize(
    ("norm_order", "activation"), [("pre", "gelu"), ("post", "swiglu"), ("sandwich", "gelu")]
)
def test_layers(norm_order: str, activation: str) -> None:
    sizes: dict[str, Any] = {"d_model": 4, "num_heads": 2, "ffn_dim": 4, "convolution_window": 2}
    model = tiny_transformer(norm_order=norm_order, activation=activation, **sizes).double()
    hidden, memory = rand(2, 3, 4), rand(2, 3, 4)
    mask = torch.tensor([[True, True, True], [True, False, False]])[:, None, None]
    encoder_layer, decoder_layer = model.encoder.layers[0], model.decoder.layers[0]
    assert gradcheck(lambda x: encoder_layer(x, AttentionContext(mask)), (hidden,))

    def decode(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return decoder_layer(
            x, decoder_layer.start(m), AttentionContext(causal_mask(3, 3)), AttentionContext(mask)
        )

    assert gradcheck(decode, (hidden, memory))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss(smoothing: float) -> None:
    inputs = (rand(5, 3), rand(7, 3))
    target = torch.tensor([0, 6, 3, 3, 1])
    assert gradcheck(lambda h, w: cross_entropy(h, w, target, smoothing), inputs)
    config = loss_config(label_smoothing=smoothing, chunk=2)
    assert gradcheck(lambda h, w: loss_function(config, h, w, target), inputs)
