"""With the same weights our options compute what Hugging Face transformers computes.

Values agree within 1e-5; so do gradients, relative to the largest where that is above 1.
"""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.lazy import Lazy
from tests.helpers.model import huggingface_twins as twins
from tests.helpers.model.models import tiny_config, tiny_transformer
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.build import (
    build_attention,
    build_attention_context,
)
from transformer.model.layers.norm import build_norm
from transformer.model.positions.alibi import alibi_slope
from transformer.model.positions.t5_buckets import BucketBias
from transformer.model.single_stack import SingleStack, build_single_stack
from transformer.settings.model import ModelConfig

hf_bloom = Lazy("transformers.models.bloom.modeling_bloom")
hf_llama = Lazy("transformers.models.llama.modeling_llama")
hf_mpt = Lazy("transformers.models.mpt.modeling_mpt")
hf_roformer = Lazy("transformers.models.roformer.modeling_roformer")
hf_t5 = Lazy("transformers.models.t5.modeling_t5")

Function = Callable[[Tensor], Tensor]
CPU = torch.device("cpu")
LLAMA: dict[str, Any] = {"norm": "rms", "positions": "rotary", "activation": "swiglu"}
T5: dict[str, Any] = {"norm": "rms", "positions": "relative"}

each_length = pytest.mark.parametrize("length", [1, 2, 7, 16])
each_kernel = pytest.mark.parametrize("kernel", ["eager", "sdpa", "flex"])
each_length_and_kernel = pytest.mark.parametrize(
    ("length", "kernel"),
    [(1, "eager"), (1, "flex"), (2, "sdpa"), (7, "eager"), (7, "flex"), (16, "sdpa")],
)


def assert_equal(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def assert_equal_functions(ours: Function, theirs: Function, entry: Tensor) -> None:
    """In value, and in the gradient with respect to ``entry``."""
    results, gradients = [], []
    for function in (ours, theirs):
        leaf = entry.detach().clone().requires_grad_()
        results.append(function(leaf))
        upstream = torch.randn(results[-1].shape, generator=torch.Generator().manual_seed(9))
        gradients.append(torch.autograd.grad(results[-1], leaf, upstream)[0])
    assert_equal(*results)
    scale = max(1.0, gradients[1].abs().max().item())
    assert gradients[1].any()
    assert_equal(gradients[0] / scale, gradients[1] / scale)


def random_hidden(length: int, width: int = 16) -> Tensor:
    return torch.randn(3, length, width, generator=torch.Generator().manual_seed(length))


def random_tokens(length: int) -> tuple[Tensor, Tensor]:
    """A whole sentence, half of one and a single token; and where there is no padding."""
    drawn = torch.randint(4, 24, (3, length), generator=torch.Generator().manual_seed(length))
    real = torch.arange(length) < torch.tensor([[length], [(length + 1) // 2], [1]])
    return drawn * real, real


def randomized_attention(config: ModelConfig, seed: int) -> MultiHeadAttention:
    torch.manual_seed(seed)
    attention = build_attention(config)
    twins.spread(attention, seed)
    return attention


def language_model(seed: int, biases: bool = False, **changes: Any) -> SingleStack:
    config = tiny_config(decoder_layers=0, tie_embeddings="none", **changes)
    torch.manual_seed(seed)
    model = build_single_stack(config, causal=True).eval()
    twins.spread(model, seed, biases=biases)
    return model


def assert_equal_language_models(ours: SingleStack, theirs: nn.Module, length: int) -> None:
    """From tokens to logits, and back to the vectors of the tokens."""
    tokens, real = random_tokens(length)
    assert_equal(
        ours.logits(ours(tokens))[real], theirs(tokens, attention_mask=real.long()).logits[real]
    )
    assert_equal_functions(
        lambda hidden: ours.logits(ours.stack(hidden, real[:, None, None]))[real],
        lambda hidden: theirs(inputs_embeds=hidden, attention_mask=real.long()).logits[real],
        ours.embedding(tokens),
    )


@each_length_and_kernel
@pytest.mark.parametrize(("num_kv_heads", "head_dim"), [(4, 4), (2, 4), (1, 4), (2, 6)])
def test_llama(num_kv_heads: int, head_dim: int, length: int, kernel: str) -> None:
    heads: dict[str, Any] = {"num_kv_heads": num_kv_heads, "head_dim": head_dim}
    ours = language_model(length, biases=True, attention=kernel, **LLAMA, **heads)
    assert_equal_language_models(ours, twins.llama(ours), length)


@each_length_and_kernel
@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_qwen3_normalizes_queries_and_keys(num_kv_heads: int, length: int, kernel: str) -> None:
    heads: dict[str, Any] = {"num_kv_heads": num_kv_heads, "head_dim": 6, "query_key_norm": True}
    ours = language_model(length, attention=kernel, **LLAMA, **heads)
    assert_equal_language_models(ours, twins.qwen3(ours), length)


@each_kernel
@pytest.mark.parametrize("window", [1, 2, 5, 8, 20])
def test_mistral_slides_a_window(window: int, kernel: str) -> None:
    ours = language_model(window, attention=kernel, pattern="sliding", window=window, **LLAMA)
    assert_equal_language_models(ours, twins.mistral(ours), 16)


@each_kernel
@pytest.mark.parametrize(("num_heads", "length"), [(1, 1), (3, 2), (4, 7), (6, 16), (12, 16)])
def test_mpt_with_alibi(num_heads: int, length: int, kernel: str) -> None:
    shape: dict[str, Any] = {"d_model": 24, "num_heads": num_heads, "ffn_dim": 96}
    ours = language_model(length, positions="alibi", activation="gelu", attention=kernel, **shape)
    assert_equal_language_models(ours, twins.mpt(ours), length)


@pytest.mark.parametrize("num_heads", [*range(1, 21), 24, 25, 32, 71, 112])
def test_alibi_slopes(num_heads: int) -> None:
    slopes = alibi_slope(torch.arange(num_heads), num_heads)
    assert_equal(
        slopes, hf_bloom.build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]
    )
    assert_equal(slopes, -hf_mpt.build_mpt_alibi_tensor(num_heads, 2)[:, 0, 0])


@each_length
def test_roformer_turns_in_both_directions(length: int) -> None:
    config = tiny_config(num_heads=2, positions="rotary")
    ours = randomized_attention(config, length)
    theirs = twins.roformer_attention(ours, config.num_heads)
    positions = hf_roformer.RoFormerSinusoidalPositionalEmbedding(
        length, config.d_k
    ).create_weight()
    context = build_attention_context(config, "full", causal=False)(length, 0, None, CPU)
    assert_equal_functions(
        lambda x: ours.attend(x, x, x, context),
        lambda x: ours.output(theirs(x, sinusoidal_pos=positions[None, None])[0]),
        random_hidden(length),
    )


@each_kernel
@pytest.mark.parametrize(("window", "global_tokens", "length"), [(2, 1, 8), (3, 4, 18), (4, 1, 8)])
def test_longformer(window: int, global_tokens: int, length: int, kernel: str) -> None:
    config = tiny_config(window=window, global_tokens=global_tokens, attention=kernel)
    ours = randomized_attention(config, length)
    theirs = twins.longformer_attention(ours, config)
    positions = torch.arange(length).expand(3, -1)
    is_global, real = positions < global_tokens, positions < length - 2
    context = build_attention_context(config, "longformer", causal=False)(
        length, 0, real[:, None, None], CPU
    )
    # As their model marks padding and global tokens for this module.
    mask = 10_000.0 * (is_global.float() - (~real).float())
    assert_equal_functions(
        lambda x: ours.attend(x, x, x, context)[real],
        lambda x: ours.output(theirs(x, mask, ~real, is_global, True)[0])[real],
        random_hidden(length),
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("buckets", [4, 8, 32, 64])
@pytest.mark.parametrize("max_distance", [33, 128, 1000])
def test_t5_buckets_and_their_bias(max_distance: int, buckets: int, causal: bool) -> None:
    config = tiny_config(relative_buckets=buckets, relative_max_distance=max_distance, **T5)
    context = build_attention_context(config, "full", causal=causal)
    assert isinstance(context.bias, BucketBias)
    distance = torch.arange(-5000, 5001)
    expected = hf_t5.T5Attention._relative_position_bucket(
        distance, not causal, buckets, max_distance
    )
    assert torch.equal(context.bias.bucket(distance), expected)
    their_config = twins.t5_config(config)
    their_config.is_decoder = causal
    theirs = hf_t5.T5Attention(their_config, has_relative_attention_bias=True, layer_idx=0)
    nn.init.normal_(context.bias.table)
    theirs.relative_attention_bias.weight.data.copy_(context.bias.table)
    for length in (1, 2, 7, 150):
        bias = cast(Tensor, context(length, 0, None, CPU).dense_bias())
        assert torch.equal(bias, theirs.compute_bias(length, length))


@each_length
@pytest.mark.parametrize(
    ("activation", "kernel"),
    [("relu", "eager"), ("gelu", "flex"), ("swiglu", "sdpa"), ("geglu", "sdpa")],
)
def test_t5_from_source_and_target_to_logits(activation: str, length: int, kernel: str) -> None:
    # A head of width 6 also tells sqrt(d_k) from sqrt(d_model / num_heads).
    shape = {"head_dim": 6, "relative_max_distance": 6, "activation": activation}
    ours = tiny_transformer(length, attention=kernel, **shape, **T5)
    twins.spread(ours, length, biases=False)
    theirs = twins.t5(ours)
    (source, visible), (target, real) = random_tokens(length), random_tokens(17 - length)
    assert_equal(
        ours.logits(ours(source, target))[real],
        theirs(source, visible.long(), decoder_input_ids=target).logits[real],
    )
    assert_equal_functions(
        lambda x: ours.encoder(x, visible[:, None, None])[visible],
        lambda x: theirs.encoder(None, visible.long(), inputs_embeds=x)[0][visible],
        ours.source_embedding(source),
    )


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("width", [1, 7, 16])
def test_rms_norm(width: int, scale: float) -> None:
    ours = build_norm(tiny_config(norm="rms", d_model=width, num_heads=1, positions="learned"))
    twins.spread(ours, width)
    for norm in (hf_llama.LlamaRMSNorm, hf_t5.T5LayerNorm):
        theirs = norm(width, eps=1e-6)
        twins.copy(ours, theirs)
        assert_equal_functions(ours, theirs, scale * random_hidden(5, width))
