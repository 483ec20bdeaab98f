"""No option is dead: every value of every field of ``ModelConfig`` builds, learns, and counts."""

import zlib
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from itertools import combinations
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.model.models import tiny_config, tiny_transformer
from transformer.common.errors import InputError
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.scaled_dot_product import Kernel
from transformer.model.build import build_transformer
from transformer.model.decoder import DecoderLayer
from transformer.model.encoder import EncoderLayer
from transformer.model.layers.feedforward import FeedForward
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig

SOURCE = torch.tensor([[7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 3], [5, 1, 4, 3, *[0] * 8]])
TARGET = torch.tensor([[2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 5], [2, 9, 1, 7, *[0] * 8]])

VECTORS = torch.randn(2, 12, 24, generator=torch.Generator().manual_seed(1))
VECTORS[1, 4:] = torch.nan
"""As long as SOURCE, for models with a front end."""

FILES: dict[str, Any] = {"tie_embeddings": "decoder", "source_vocab_size": 24}
RELATIVE: dict[str, Any] = {"positions": "relative"}
BIGBIRD: dict[str, Any] = {"pattern": "bigbird"}


class OwnEncoderLayer(EncoderLayer):
    def forward(self, *given: Any) -> Any:
        return -super().forward(*given)


class OwnDecoderLayer(DecoderLayer):
    def forward(self, *given: Any, **more: Any) -> Any:
        return -super().forward(*given, **more)


class OwnFeedForward(FeedForward):
    def forward(self, hidden: Any) -> Any:
        return -super().forward(hidden)


class ZeroBranch(FeedForward):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.gate = nn.Linear(1, 1)
        nn.init.constant_(self.gate.weight, 0.0)
        nn.init.constant_(self.gate.bias, 0.5)


VALUES: dict[str, Sequence[Any]] = {
    # Options of words are all tried, as their annotations list them; the others by some values.
    **dict.fromkeys(("source_vocab_size", "target_vocab_size"), (24, 25)),
    "pad": [0, 1],
    "d_model": [16, 24],
    "num_heads": [4, 2, 1],
    "num_kv_heads": [None, 2, 1],
    "head_dim": [None, 6],
    "ffn_dim": [32, 40],
    **dict.fromkeys(("encoder_layers", "decoder_layers"), (2, 1, 3)),
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), (0.0, 0.3)),
    **dict.fromkeys(("source_token_dropout", "target_token_dropout"), (0.0, 0.3)),
    "layer_drop": [0.0, 0.9],
    "class_token": [False, True],
    "max_source_length": [None, 16],
    "norm_epsilon": [1e-5, 0.5],
    "max_length": [64, 12],
    "convolution_window": [None, 1, 4],
    "encoder_layer": [None, f"{__name__}:OwnEncoderLayer"],
    "decoder_layer": [None, f"{__name__}:OwnDecoderLayer"],
    "feed_forward": [None, f"{__name__}:OwnFeedForward"],
    **dict.fromkeys(("scale_scores", "biases", "scale_embedding"), (True, False)),
    **dict.fromkeys(("scale_output", "embedding_norm"), (False, True)),
    "lora_rank": [0, 2, 4],
    "lora_alpha": [16.0, 4.0],
    "relative_buckets": [8, 12],
    "relative_max_distance": [16, 8],
    "window": [2, 4],
    "global_tokens": [1, 3],
    "random_blocks": [1, 4],
    "random_block_size": [2, 3],
    "pattern_seed": [1, 2],
}

# What an option needs to mean anything; it must mean something in each of these models.
NEEDS: dict[str, Sequence[dict[str, Any]]] = {
    **dict.fromkeys(("source_vocab_size", "target_vocab_size"), ({"tie_embeddings": "none"},)),
    **dict.fromkeys(("max_length", "max_source_length"), ({"positions": "learned"},)),
    "front_end": [FILES],
    "class_token": [FILES | {"front_end": "patches"}],
    **dict.fromkeys(("relative_buckets", "relative_max_distance"), (RELATIVE,)),
    "sdpa_backend": [{"attention": "sdpa"}],
    "window": [{"pattern": name} for name in ("sliding", "longformer", "bigbird")],
    "global_tokens": [{"pattern": "longformer"}, BIGBIRD],
    "random_blocks": [BIGBIRD],
    "random_block_size": [BIGBIRD],
    "pattern_seed": [BIGBIRD],
    "lora_alpha": [{"lora_rank": 2}],
}

KERNEL_ONLY = ("attention", "sdpa_backend")


def choices(field: str) -> list[Any]:
    """The words that an option may be."""
    hint = get_type_hints(ModelConfig)[field]
    options = (hint, *get_args(hint))
    for option in options:
        if get_origin(option) is Literal:
            return [*([False, True] if bool in options else []), *get_args(option)]
    return []


def values(field: str) -> Sequence[Any]:
    if field == "sdpa_backend":
        # The others are a GPU's, or do without a mask.
        return ["any", "math"]
    return choices(field) or VALUES.get(field, [])


ELSEWHERE = ("freeze", "decoder_start", "output_bias")
"""Not computed in a forward pass, or by words alone: test_finetuning.py and the parity tests of
imports try them."""

FIELDS = [field.name for field in fields(ModelConfig) if field.name not in ELSEWHERE]
MODELS = [
    pytest.param(needs | {field: value}, id=f"{field}={value}")
    for field in FIELDS
    for needs in NEEDS.get(field, [{}])
    for value in values(field)
]
OTHERS = [model for model in MODELS if tiny_config(**model.values[0]) != tiny_config()]
"""Without those that are the tiny model itself."""


def test_every_field_is_tried_here() -> None:
    words = {field for field in FIELDS if choices(field)}
    assert set(VALUES) | words == set(FIELDS)
    assert not set(VALUES) & words
    assert all(len(tried) > 1 for tried in VALUES.values())


def outputs(model: Transformer) -> Tensor:
    source = SOURCE if model.config.front_end is None else VECTORS
    return model.logits(model(source, TARGET))


def loss_of(model: Transformer) -> Tensor:
    scores = outputs(model).float().flatten(0, 1)
    return nn.functional.cross_entropy(scores, TARGET.flatten(), ignore_index=0)


def assert_learns(model: Transformer, *, may_rest: bool = False) -> None:
    """A finite loss, and gradients; some weights may have none in this step."""
    torch.manual_seed(1)
    loss = loss_of(model.train())
    loss.backward()
    assert loss.isfinite()
    for name, weight in model.named_parameters():
        assert weight.grad is not None or may_rest, name
        if weight.grad is not None:
            # The same amount for every key does not change a softmax; adapters begin as zero.
            assert weight.grad.any() or name.endswith(("key.bias", "lora_down")), name
            assert weight.grad.isfinite().all(), name


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("changes", [{}, *OTHERS])
def test_every_value_learns(changes: dict[str, Any]) -> None:
    assert_learns(
        tiny_transformer(**changes), may_rest=not {"layer_drop", "lora_rank"}.isdisjoint(changes)
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert_learns(
            tiny_transformer(**changes),
            may_rest=not {"layer_drop", "lora_rank"}.isdisjoint(changes),
        )


def fill(model: Transformer) -> Transformer:
    """Weights that depend on their names alone, so that models differ by what they compute."""
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        drawn = torch.randn(parameter.shape, generator=generator)
        parameter.data.copy_(1 + 0.3 * drawn if drawn.dim() == 1 else drawn * 0.3)
    return model


Effect = tuple[dict[str, torch.Size], Tensor]


def effect(changes: dict[str, Any]) -> Effect:
    """The shapes of the weights, and what a training step computes of them."""
    return _effect(tiny_config(**changes))


@cache
def _effect(config: ModelConfig) -> Effect:
    model = fill(build_transformer(config)).train()
    torch.manual_seed(1)
    with torch.no_grad():
        return {name: weight.shape for name, weight in model.named_parameters()}, outputs(model)


def same(one: Effect, other: Effect) -> bool:
    return one[0] == other[0] and torch.allclose(one[1], other[1], atol=1e-3)


@pytest.mark.parametrize("field", [field for field in FIELDS if field not in KERNEL_ONLY])
def test_every_value_differs_from_every_other(field: str) -> None:
    for needs in NEEDS.get(field, [{}]):
        found = {value: effect(needs | {field: value}) for value in values(field)}
        assert len(found) > 1
        for one, other in combinations(found, 2):
            if {one, other} == {"patches", "linear"}:
                continue  # the same but for a class token
            if other == f"{one}_tanh":  # an approximation: it differs by less than a rounding
                assert not torch.equal(found[one][1], found[other][1])
            else:
                assert not same(found[one], found[other]), (needs, one, other)


@pytest.mark.parametrize("field", KERNEL_ONLY)
def test_every_word_for_a_kernel_is_another_kernel(field: str) -> None:
    def kernel(value: str) -> Kernel:
        config = tiny_config(**{"attention": "sdpa", field: value})
        modules = build_transformer(config).modules()
        [kernel] = {m.kernel for m in modules if isinstance(m, MultiHeadAttention)}
        return kernel

    kernels = {value: kernel(value) for value in choices(field)}
    assert len(set(kernels.values())) == len(kernels) == len(choices(field))


def test_a_translator_needs_a_decoder() -> None:
    with pytest.raises(InputError, match=r"model\.decoder_layers=0 leaves no decoder; set at"):
        tiny_transformer(decoder_layers=0)


def test_layers_of_a_users_own_module_keep_their_initial_weights() -> None:
    model = build_transformer(tiny_config(feed_forward=f"{__name__}:ZeroBranch"))
    branches = [module for module in model.modules() if isinstance(module, ZeroBranch)]
    assert len(branches) == 4
    for branch in branches:
        assert (branch.gate.weight.item(), branch.gate.bias.item()) == (0.0, 0.5)
        # Its layers of ours are drawn as all are.
        assert branch.outer.bias is not None and not branch.outer.bias.any()
