"""Every kernel computes what the formula computes, in value and gradient."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.common.errors import InputError
from transformer.model.attention.attention_context import (
    AttentionContext,
    RelativeBias,
    StackContext,
)
from transformer.model.attention.kernels.flex import (
    attend_flex,
    auto,
    compiled_flex_attention,
    flex,
)
from transformer.model.attention.kernels.fused import attend_fused, attend_masked
from transformer.model.attention.kernels.sdpa import (
    BACKENDS,
    FEW,
    Sdpa,
    attend_short,
    gpu_kernels,
    plain_is_faster,
    prepare_sdpa,
)
from transformer.model.attention.masks import additive_mask, causal_mask
from transformer.model.attention.scaled_dot_product import Kernel, eager
from transformer.model.attention.sparse_patterns import (
    BigBird,
    Longformer,
    Pattern,
    Sliding,
)
from transformer.model.positions.alibi import AlibiBias
from transformer.model.positions.t5_buckets import BucketBias

PATTERNS: dict[str, Pattern | None] = {
    "full": None,
    "sliding": Sliding(3),
    "longformer": Longformer(3, 1),
    "bigbird": BigBird(3, 1, 2, 8, 1),
}
HEADS = 4
# Around the size of a block of the sparse kernel, 64.
LENGTHS = [1, 63, 64, 65, 130]


def heads(queries: int, keys: int, kv_heads: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    # The least width that a GPU's kernels take.
    shapes = [(3, HEADS, queries, 16), (3, kv_heads, keys, 16), (3, kv_heads, keys, 16)]
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def padding(keys: int) -> Tensor:
    """A whole sentence, one cut short, and one of padding alone."""
    mask = torch.ones(3, 1, 1, keys, dtype=torch.bool)
    mask[1, ..., (keys + 1) // 2 :] = False
    mask[2] = False
    return mask


def causal_context(length: int) -> AttentionContext:
    positions = torch.arange(length)
    return AttentionContext(queries=positions, keys=positions, causal=True)


def bias_of(name: str, causal: bool) -> RelativeBias | None:
    if name == "relative":
        bias = BucketBias(HEADS, buckets=8, max_distance=16, causal=causal)
        torch.nn.init.normal_(bias.table, generator=torch.Generator().manual_seed(2))
        return bias
    return AlibiBias(HEADS) if name == "alibi" else None


def value_and_gradients(
    kernel: Kernel, context: AttentionContext, inputs: list[Tensor]
) -> list[Tensor]:
    attended = kernel(*inputs, context, 0.0)
    upstream = torch.randn(attended.shape, generator=torch.Generator().manual_seed(3))
    parameters = [] if context.bias is None else list(context.bias.parameters())
    gradients = torch.autograd.grad(
        attended, [*inputs, *parameters], upstream.to(attended), allow_unused=True
    )
    # The gradient of a table is no more exact than the scores it is added to.
    return [attended, *(g.to(attended.dtype) for g in gradients if g is not None)]


def assert_as_the_formula(kernel: Kernel, context: AttentionContext, inputs: list[Tensor]) -> None:
    expected = value_and_gradients(eager, context, inputs)
    actual = value_and_gradients(kernel, context, inputs)
    assert len(actual) == len(expected)
    for mine, other in zip(actual, expected, strict=True):
        assert torch.isfinite(mine).all()
        # A gradient is a sum over many queries: its error grows with its largest terms.
        scale = max(1.0, other.abs().max().item())
        assert_close(mine / scale, other / scale)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "kernel", [Sdpa(), pytest.param(Sdpa("math"), marks=pytest.mark.thorough), flex]
)
def test_self_attention_with_padding(
    kernel: Kernel, causal: bool, pattern: str, dtype: torch.dtype
) -> None:
    # In training no sentence is padding alone.
    stack = StackContext(causal=causal, pattern=PATTERNS[pattern]).eval()
    for length in LENGTHS:
        context = stack(length, 0, padding(length), torch.device("cpu"))
        assert_as_the_formula(kernel, context, heads(length, length, HEADS, dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [2, HEADS])
@pytest.mark.parametrize("bias", ["none", "relative"])
@pytest.mark.parametrize("hides", [False, True])
def test_short_sentences_that_are_learned(
    hides: bool, bias: str, kv_heads: int, dtype: torch.dtype
) -> None:
    """Around the number of keys up to which they are filled up."""
    stack = StackContext(bias=bias_of(bias, causal=False)).eval()
    for length in (1, 15, 16, 17):
        mask = padding(length) if hides else None
        if mask is not None:
            mask[2] = True
        context = stack(length, 0, mask, torch.device("cpu"))
        assert_as_the_formula(attend_short, context, heads(length, length, kv_heads, dtype))


def test_dropout_keeps_the_expectation() -> None:
    inputs = heads(5, 5, HEADS, torch.float32)
    torch.manual_seed(1)
    every = torch.stack([attend_short(*inputs, AttentionContext(), 0.5) for _ in range(500)])
    # Twenty times the error of a mean of 500, of values of about 1.
    assert (every.mean(0) - attend_short(*inputs, AttentionContext(), 0.0)).abs().max() < 0.5
    assert every.var(0).max() > 0.1
    # The sparse kernel.
    context = StackContext(pattern=Sliding(3))(128, 0, None, torch.device("cpu"))
    query, key, value = (torch.ones(64, 4, 128, 8) for _ in range(3))
    attended = flex(query, key, value, context, 0.5)
    # Each of 2 ** 15 rows has at least 4 weights of at least 1/7, each doubled or gone.
    assert attended.mean().item() == pytest.approx(1.0, abs=5 * math.sqrt(1 / 4) / 2**7.5)
    assert attended.std().item() > 0.1


@pytest.mark.parametrize(("length", "blind"), [(5, False), (64, False), (5, True), (65, False)])
def test_what_learns_short_sentences(
    length: int, blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for name in ("attend_short", "eager", "attend_masked"):

        def computes(query: Tensor, *_: object, name: str = name, **__: object) -> Tensor:
            called.append(name)
            return query

        monkeypatch.setattr(f"transformer.model.attention.kernels.sdpa.{name}", computes)
    mask = padding(length)
    mask[2] = not blind
    Sdpa()(*heads(length, length, HEADS, torch.float32), AttentionContext(mask), 0.0)
    assert called == ["attend_masked" if length > 64 else "eager" if blind else "attend_short"]


@pytest.mark.parametrize("bias", ["alibi", "relative"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", ["full", "longformer"])
@pytest.mark.parametrize("kernel", [Sdpa(), flex])
def test_a_bias_and_the_gradient_of_its_table(
    kernel: Kernel, pattern: str, causal: bool, bias: str
) -> None:
    stack = StackContext(
        causal=causal, pattern=PATTERNS[pattern], bias=bias_of(bias, causal)
    ).eval()
    for length in (1, 70):
        context = stack(length, 0, padding(length), torch.device("cpu"))
        for dtype in (torch.float32, torch.bfloat16):
            assert_as_the_formula(kernel, context, heads(length, length, HEADS, dtype))


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("kernel", [Sdpa(), flex])
def test_shared_heads_of_keys_and_values(kernel: Kernel, kv_heads: int) -> None:
    context = StackContext(causal=True, pattern=Sliding(9))(70, 0, padding(70), torch.device("cpu"))
    for dtype in (torch.float32, torch.bfloat16):
        assert_as_the_formula(kernel, context, heads(70, 70, kv_heads, dtype))


@pytest.mark.parametrize("kernel", [Sdpa(), flex, auto])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (7, 3), (65, 130)])
@pytest.mark.parametrize("mask", [lambda q, k: None, lambda q, k: padding(k), causal_mask])
def test_cross_attention(
    kernel: Kernel, queries: int, keys: int, mask: Callable[[int, int], Tensor | None]
) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        context = AttentionContext(mask(queries, keys))
        assert_as_the_formula(kernel, context, heads(queries, keys, HEADS, dtype))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_last_queries_alone_as_with_a_cache(pattern: str) -> None:
    stack = StackContext(causal=True, pattern=PATTERNS[pattern], bias=bias_of("relative", True))
    context = stack(5, 95, None, torch.device("cpu"))
    for kernel in (Sdpa(), flex):
        assert_as_the_formula(kernel, context, heads(5, 100, 2, torch.float32))


@pytest.mark.thorough
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("pattern", "bias", "start"),
    # Every two of them meet.
    [
        (pattern, bias, 60 * ((number + other) % 2))
        for number, pattern in enumerate(PATTERNS)
        for other, bias in enumerate(["none", "alibi", "relative"])
    ],
)
def test_what_a_gpu_computes_has_the_right_values(pattern: str, bias: str, start: int) -> None:
    stack = StackContext(causal=True, pattern=PATTERNS[pattern], bias=bias_of(bias, True))
    with torch.inference_mode():
        context = stack(70, start, padding(70 + start), torch.device("cpu"))
        inputs = [t.detach() for t in heads(70, 70 + start, 2, torch.float32)]
        attended = attend_flex(*inputs, context, flex_attention)
        assert_close(attended, eager(*inputs, context, 0.0))


@pytest.mark.usefixtures("unchecked")
def test_a_gpu_keeps_masks_of_heads_apart() -> None:
    mask = torch.rand(3, HEADS, 1, 70, generator=torch.Generator().manual_seed(5)) < 0.5
    with torch.inference_mode():
        context = StackContext(pattern=Sliding(9))(70, 0, mask, torch.device("cpu"))
        inputs = [t.detach() for t in heads(70, 70, HEADS, torch.float32)]
        assert_close(
            attend_flex(*inputs, context, flex_attention),
            eager(*inputs, context, 0.0),
        )


def test_the_causal_mask_alone_is_not_made() -> None:
    context = StackContext(causal=True)(70, 0, None, torch.device("cpu"))
    assert_as_the_formula(Sdpa(), context, heads(70, 70, 2, torch.float32))
    assert prepare_sdpa(context, torch.float32).dense is None


MASKED = AttentionContext(mask=torch.ones(1, 1, 1, 600, dtype=torch.bool))


@pytest.mark.parametrize(
    ("context", "queries", "keys", "first"),
    [
        (causal_context(128), 128, 128, "efficient"),
        (causal_context(129), 129, 129, "flash"),
        (MASKED, 511, 511, "flash"),
        (MASKED, 512, 512, "flash"),
        (MASKED, 1, 600, "flash"),
        (replace(MASKED, pattern=Sliding(3)), 600, 600, "flash"),
        (replace(MASKED, bias=AlibiBias(HEADS)), 600, 600, "flash"),
        (replace(causal_context(600), mask=MASKED.mask), 600, 600, "flash"),
    ],
)
def test_a_gpu_takes_the_kernel_that_was_fastest(
    context: AttentionContext, queries: int, keys: int, first: str
) -> None:
    kernels = gpu_kernels(context, queries, keys)
    assert kernels[0] == first
    assert "math" in kernels and set(kernels) <= set(BACKENDS)


@pytest.mark.gpu
@pytest.mark.parametrize(("length", "kernel"), [(128, "efficient"), (129, "flash")])
def test_the_first_kernel_computes_on_a_gpu(length: int, kernel: str) -> None:
    query = torch.randn(2, HEADS, length, 64, device="cuda", dtype=torch.bfloat16)
    context = StackContext(causal=True)(length, 0, None, query.device)
    with torch.profiler.profile() as profile:
        Sdpa()(query, query, query, context, 0.1)
    names = " ".join(event.key for event in profile.key_averages())
    assert f"_scaled_dot_product_{kernel}_attention" in names


def test_nothing_is_multiplied_where_every_query_sees() -> None:
    query, key, value = heads(70, 70, HEADS, torch.float32)
    mask = padding(70)
    mask[2, ..., 0] = True
    additive = additive_mask(mask, None, query.dtype, every_query_sees=True)
    promised = attend_masked(query, key, value, additive)
    assert_close(promised, attend_fused(query, key, value, mask))


@pytest.mark.parametrize("backend", ["efficient", "cudnn"])
def test_a_forced_kernel_runs_or_is_named(backend: str) -> None:
    inputs = heads(2, 3, HEADS, torch.float32)
    with pytest.raises(InputError, match=f"model.sdpa_backend={backend} cannot compute") as caught:
        Sdpa(backend)(*inputs, AttentionContext(padding(3)), 0.0)
    assert "\n" not in str(caught.value)
    inputs = heads(65, 65, HEADS, torch.float32)
    with torch.profiler.profile() as profile:
        Sdpa("math")(*inputs, AttentionContext(), 0.0)
    assert "aten::_scaled_dot_product_attention_math" in {e.key for e in profile.key_averages()}


def test_auto_leaves_out_blocks_where_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []

    def remember(query: Tensor, key: Tensor, value: Tensor, *_: object) -> Tensor:
        called.append(query.size(2))
        return query

    monkeypatch.setattr("transformer.model.attention.kernels.block_sparse.attend_blocks", remember)
    for pattern, length in ((Sliding(4), 1024), (Sliding(4), 1023), (None, 1024)):
        context = StackContext(pattern=pattern)(length, 0, None, torch.device("cpu"))
        auto(*(torch.zeros(1, 1, length, 2) for _ in range(3)), context, 0.0)
    assert called == [1024]


@pytest.mark.parametrize(
    ("attention", "pattern", "length", "filled"),
    [
        ("sdpa", "sliding", 1024, True),
        ("auto", "sliding", 1023, True),
        ("auto", "sliding", 1024, False),
        ("flex", "sliding", 65, False),
        ("auto", "full", 65, False),
        ("auto", "full", 64, True),
    ],
)
def test_a_stack_makes_a_mask_of_all_pairs_only_for_a_kernel_that_reads_it(
    attention: str, pattern: str, length: int, filled: bool
) -> None:
    model = tiny_transformer(attention=attention, pattern=pattern)
    context = model.decoder.attention_context(length, 0, None, torch.device("cpu"))
    assert (context.dense is not None) == filled


@pytest.mark.gpu
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("bias", ["none", "alibi", "relative"])
def test_compiled_on_a_gpu(pattern: str, bias: str, dtype: torch.dtype) -> None:
    # Otherwise torch stops compiling after some of these, and attends uncompiled.
    torch.compiler.reset()
    compiled_flex_attention.cache_clear()
    device = torch.device("cuda")
    stack = StackContext(causal=True, pattern=PATTERNS[pattern], bias=bias_of(bias, True)).to(
        device
    )
    context = stack(200, 0, padding(200).to(device), device)
    inputs = [t.detach().to(device).requires_grad_() for t in heads(200, 200, 2, dtype)]

    def compiled(q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, _: float) -> Tensor:
        return attend_flex(q, k, v, context, compiled_flex_attention())

    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        assert_as_the_formula(compiled, context, inputs)
    assert_as_the_formula(Sdpa(), context, inputs)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("bias", [None, AlibiBias(HEADS)])
@pytest.mark.parametrize("queries", [1, 5, FEW])
@torch.inference_mode()
def test_a_few_queries_by_plain_products_are_the_formula(
    bias: RelativeBias | None, queries: int, masked: bool
) -> None:
    query, key, value = heads(queries, 20, HEADS, torch.float64)
    mask = torch.rand(3, 1, 1, 20, generator=torch.Generator().manual_seed(2)) > 0.3
    mask[..., 0] = True
    there, positions = torch.arange(20), torch.arange(16 - queries, 16)
    # The last four keys are room of a cache.
    context = AttentionContext(
        mask if masked else None, positions, there, True, bias=bias, unfilled=4
    )
    assert plain_is_faster(query, key, context, 0.0)
    found = Sdpa()(query, key, value, context, 0.0)
    without = AttentionContext(
        mask[..., :16] if masked else None, positions, there[:16], True, bias=bias
    )
    assert_close(found, eager(query, key[:, :, :16], value[:, :, :16], without, 0.0))
    assert_close(found, eager(query, key, value, context, 0.0))


def test_plain_products_drop_weights_and_leave_out_the_blind() -> None:
    torch.manual_seed(3)
    query, key = torch.randn(1, 2, 1, 4), torch.randn(1, 2, 20, 4)
    with torch.no_grad():
        dropped = [Sdpa()(query, key, key, AttentionContext(), 0.5) for _ in range(2)]
    assert not torch.equal(*dropped)
    blind = AttentionContext(torch.zeros(1, 1, 1, 16, dtype=torch.bool))
    keys = torch.randn(1, 2, 16, 4)
    with torch.inference_mode():
        assert not plain_is_faster(keys[:, :, :1], keys, blind, 0.0)
        assert not Sdpa()(keys[:, :, :1], keys, keys, blind, 0.0).any()
        assert plain_is_faster(keys[:, :, :1], keys, AttentionContext(), 0.0)
