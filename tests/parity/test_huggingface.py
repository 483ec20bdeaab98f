"""With the same weights our options compute what Hugging Face transformers computes.

Values agree within 1e-5; so do gradients, relative to the largest where that is above 1.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.lazy import Lazy
from tests.helpers.model import huggingface_twins as twins
from tests.helpers.model.models import tiny_config
from transformer.model.positions.alibi import alibi_slope
from transformer.model.single_stack import SingleStack, build_single_stack

hf_bloom = Lazy("transformers.models.bloom.modeling_bloom")
hf_mpt = Lazy("transformers.models.mpt.modeling_mpt")

LLAMA: dict[str, Any] = {"norm": "rms", "positions": "rotary", "activation": "swiglu"}


def assert_equal(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def language_model(seed: int, biases: bool = False, **changes: Any) -> SingleStack:
    config = tiny_config(decoder_layers=0, tie_embeddings="none", **LLAMA, **changes)
    torch.manual_seed(seed)
    model = build_single_stack(config, causal=True).eval()
    twins.spread(model, seed, biases=biases)
    return model


def assert_equal_models(ours: SingleStack, theirs: nn.Module, length: int) -> None:
    """From tokens to logits, and back to the vectors of the tokens."""
    generator = torch.Generator().manual_seed(length)
    real = torch.arange(length) < torch.tensor([[length], [(length + 1) // 2], [1]])
    tokens = torch.randint(4, 24, (3, length), generator=generator) * real
    mask = real.long()
    assert_equal(ours.logits(ours(tokens))[real], theirs(tokens, attention_mask=mask).logits[real])
    vectors = ours.embedding(tokens).detach().requires_grad_()
    logits = ours.logits(ours.stack(vectors, real[:, None, None]))[real]
    upstream = torch.randn(logits.shape, generator=generator)
    [gradient] = torch.autograd.grad(logits, vectors, upstream)
    their_logits = theirs(inputs_embeds=vectors, attention_mask=mask).logits[real]
    [expected] = torch.autograd.grad(their_logits, vectors, upstream)
    scale = max(1.0, expected.abs().max().item())
    assert expected.any()
    assert_equal(gradient / scale, expected / scale)


@pytest.mark.parametrize(
    ("length", "kernel"), [(1, "flex"), (2, "sdpa"), (7, "eager"), (7, "flex")]
)
def test_llama_and_qwen3(length: int, kernel: str) -> None:
    for num_kv_heads, head_dim in ((1, 4), (2, 6)):
        heads = {"num_kv_heads": num_kv_heads, "head_dim": head_dim}
        ours = language_model(length, biases=True, attention=kernel, **heads)
        assert_equal_models(ours, twins.llama(ours), length)
        # Qwen3 normalizes queries and keys.
        ours = language_model(length, attention=kernel, query_key_norm=True, **heads)
        assert_equal_models(ours, twins.qwen3(ours), length)


@pytest.mark.parametrize("num_heads", [1, 3, 8, 12, 71])
def test_alibi_slopes(num_heads: int) -> None:
    slopes = alibi_slope(torch.arange(num_heads), num_heads)
    assert_equal(
        slopes, hf_bloom.build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]
    )
    assert_equal(slopes, -hf_mpt.build_mpt_alibi_tensor(num_heads, 2)[:, 0, 0])
