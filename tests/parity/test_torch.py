"""With the same weights our blocks compute what torch's own modules compute."""

import pytest
import torch
from torch import nn

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from tests.helpers.model.torch_twins import (
    copy_attention,
    torch_transformer,
)
from transformer.model.attention.kernels.flex import auto, flex
from transformer.model.attention.kernels.sdpa import Sdpa
from transformer.model.attention.masks import causal_mask, padding_mask
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.scaled_dot_product import Kernel, eager
from transformer.model.transformer import Transformer

PAD = 0
SOURCE = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, PAD, PAD], [13, PAD, PAD, PAD, PAD]])
TARGET = torch.tensor([[2, 5, 6, 7], [2, 8, 9, 10], [2, 11, 12, 13]])


@pytest.fixture(params=["pre", "post"])
def model(request: pytest.FixtureRequest) -> Transformer:
    model = tiny_transformer(norm_order=request.param)
    # Zero biases and unit norms would hide a forgotten copy.
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("kernel", [eager, Sdpa(), flex, auto])
@pytest.mark.parametrize("heads", [1, 4])
def test_multi_head_attention(kernel: Kernel, heads: int) -> None:
    torch.manual_seed(0)
    ours = MultiHeadAttention(16, heads, dropout=0.0, kernel=kernel).eval()
    theirs = nn.MultiheadAttention(16, heads, batch_first=True).eval()
    copy_attention(ours, theirs)
    query, memory = torch.randn(3, 4, 16), torch.randn(3, 5, 16)
    mask = padding_mask(SOURCE, PAD)
    expected, _ = theirs(query, memory, memory, key_padding_mask=~mask[:, 0, 0])
    assert_close(ours(query, memory, memory, mask), expected)


def test_the_whole_stack_in_value_and_gradient(model: Transformer) -> None:
    theirs = torch_transformer(model)
    padding = SOURCE == PAD
    source = model.source_embedding(SOURCE).detach().requires_grad_()
    target = model.target_embedding(TARGET).detach().requires_grad_()
    mask = padding_mask(SOURCE, PAD)

    memory = model.encoder(source, mask)
    cache = model.start(type(model.encode(SOURCE))(memory, mask))
    actual = model.decoder(target, cache)
    expected = theirs(
        source,
        target,
        tgt_mask=~causal_mask(4, 4)[0, 0],
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    assert_close(actual, expected)
    weight = torch.randn(actual.shape)
    ours = torch.autograd.grad((actual * weight).sum(), (source, target))
    others = torch.autograd.grad((expected * weight).sum(), (source, target))
    for mine, other in zip(ours, others, strict=True):
        assert_close(mine, other)
