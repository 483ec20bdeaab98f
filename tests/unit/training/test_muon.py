"""Muon: orthogonal updates against a singular value decomposition, and which weights get them."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from tests.helpers.model.models import tiny_config, tiny_transformer
from tests.helpers.training.sharded import in_ranks
from transformer.common.errors import InputError
from transformer.model.layers.lora import add_adapters
from transformer.model.single_stack import build_single_stack
from transformer.settings.training import OptimizerConfig
from transformer.training.checkpointing import optimizer_state
from transformer.training.distributed.fsdp import shard
from transformer.training.muon import Muon, hidden_matrices, orthogonalize
from transformer.training.optimization import build_optimizer

LR = 0.1
ADAMW = {"lr": LR, "betas": (0.9, 0.98), "eps": 1e-9}


def muon(matrix: nn.Parameter, count: int = 1, **changes: Any) -> Muon:
    settings = {**ADAMW, "weight_decay": 0.0, "momentum": 0.95, **changes}
    return Muon({matrix: count}, [], **settings)


def conditioned(rows: int, columns: int, smallest: float = 0.02) -> Tensor:
    """A matrix whose singular values fall from 1 to ``smallest``."""
    generator = torch.Generator().manual_seed(1)
    u, _, v = torch.linalg.svd(torch.randn(rows, columns, generator=generator), full_matrices=False)
    return u * torch.logspace(0, math.log10(smallest), len(v)) @ v


def polar(matrix: Tensor) -> Tensor:
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    return u @ v


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(24, 48), (48, 24), (32, 32)])
def test_singular_values_become_one_and_directions_stay(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    matrices = torch.stack([conditioned(*shape), 1e6 * conditioned(*shape, 0.5)])
    for matrix, result in zip(matrices, orthogonalize(matrices, dtype), strict=True):
        assert result.dtype == torch.float32
        values = torch.linalg.svdvals(result)
        assert values.min() > 0.85 and values.max() < 1.15
        assert torch.cosine_similarity(result.flatten(), polar(matrix).flatten(), dim=0) > 0.99


def test_no_gradient_is_no_update() -> None:
    assert torch.equal(orthogonalize(torch.zeros(1, 4, 8)), torch.zeros(1, 4, 8))


def test_an_update_by_hand() -> None:
    first, second = conditioned(8, 16), conditioned(8, 16, 0.1).flip(1)
    matrix = nn.Parameter(torch.ones(8, 16))
    optimizer = muon(matrix, weight_decay=0.5)
    expected = torch.ones(8, 16)
    momentum = torch.zeros(8, 16)
    for gradient in (first, second):
        matrix.grad = gradient.clone()
        optimizer.step()
        momentum = 0.95 * momentum + 0.05 * gradient
        nesterov = 0.95 * momentum + 0.05 * gradient
        direction = orthogonalize(nesterov[None])[0]
        expected = expected * (1 - LR * 0.5) - LR * 0.2 * math.sqrt(16) * direction
    torch.testing.assert_close(matrix.detach(), expected)
    torch.testing.assert_close(optimizer.state[matrix]["momentum"], momentum)


def test_each_head_is_a_matrix_of_its_own() -> None:
    gradient = torch.cat([conditioned(4, 16), 100 * conditioned(4, 16, 0.1).flip(1)])
    matrix = nn.Parameter(torch.zeros(8, 16))
    matrix.grad = gradient.clone()
    muon(matrix, count=2).step()
    for head, part in zip(matrix.detach().split(4), gradient.split(4), strict=True):
        torch.testing.assert_close(head, -LR * 0.2 * 4 * orthogonalize(part[None])[0])


def test_a_bad_update_changes_nothing() -> None:
    model = tiny_transformer()
    optimizer = build_optimizer(OptimizerConfig("muon", weight_decay=0.1), model)
    for value in (1.0, math.nan):
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        saved = {
            (number, name): moment.clone()
            for number, moments in optimizer.state_dict()["state"].items()
            for name, moment in moments.items()
        }
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, value)
        optimizer.found_inf = torch.tensor(float(math.isnan(value)))  # type: ignore[attr-defined]
        optimizer.step()
        changed = [name for name, w in model.named_parameters() if not torch.equal(w, before[name])]
        assert changed == ([] if math.isnan(value) else [*before])
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(after[number][name], moment) for (number, name), moment in saved.items())


def test_gradients_are_divided_by_their_scale() -> None:
    matrices = [nn.Parameter(torch.zeros(4, 8)) for _ in range(2)]
    for matrix, scale in zip(matrices, (1.0, 7.0), strict=True):
        optimizer = muon(matrix)
        optimizer.grad_scale = torch.tensor(scale)
        matrix.grad = scale * conditioned(4, 8)
        optimizer.step()
        torch.testing.assert_close(optimizer.state[matrix]["momentum"], 0.05 * conditioned(4, 8))


def test_the_linear_maps_of_the_layers_are_matrices() -> None:
    model = tiny_transformer(num_heads=4, num_kv_heads=2, head_dim=4, encoder_layers=1)
    names = {weight: name for name, weight in model.named_parameters()}
    parts = {names[weight]: count for weight, count in hidden_matrices(model).items()}
    assert {name: count for name, count in parts.items() if name.startswith("encoder.")} == {
        "encoder.layers.0.attention.query.weight": 4,
        "encoder.layers.0.attention.key.weight": 2,
        "encoder.layers.0.attention.value.weight": 2,
        "encoder.layers.0.attention.output.weight": 1,
        "encoder.layers.0.feed_forward.inner.weight": 1,
        "encoder.layers.0.feed_forward.outer.weight": 1,
    }
    assert {name.split(".")[0] for name in parts} == {"encoder", "decoder"}


def test_adapters_frozen_and_shared_weights() -> None:
    model = tiny_transformer(share_layers="all")
    assert len(hidden_matrices(model)) == len(hidden_matrices(tiny_transformer())) / 2
    model.encoder.requires_grad_(False)
    names = {weight: name for name, weight in model.named_parameters()}
    assert {names[weight].split(".")[0] for weight in hidden_matrices(model)} == {"decoder"}
    model.requires_grad_(False)
    add_adapters(model, rank=2, alpha=4.0)
    assert not hidden_matrices(model)


def test_other_layers() -> None:
    convolution = tiny_transformer(convolution_window=3, encoder_layers=1)
    counts = hidden_matrices(convolution)
    assert counts[convolution.encoder.layers[0].convolution.linear.weight] == 2
    recurrent = tiny_transformer(decoder_layer="ssru", decoder_layers=1)
    names = {weight: name for name, weight in recurrent.named_parameters()}
    assert any(names[weight].endswith("forget.weight") for weight in hidden_matrices(recurrent))
    stack = build_single_stack(tiny_config(), causal=True)
    assert len(hidden_matrices(stack)) == 6 * len(stack.stack.layers)
    # A map of a layer that is the embedding, too, and one that torch parametrizes.
    tied = tiny_transformer(encoder_layers=1)
    layer: Any = tied.encoder.layers[0]
    layer.tied = nn.Linear(4, 4)
    layer.tied.weight = tied.projection.weight
    layer.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    assert len(hidden_matrices(tied)) == len(hidden_matrices(tiny_transformer(encoder_layers=1)))


@pytest.mark.parametrize("narrow", [False, True])
def test_products_have_the_type_of_the_setting_under_any_autocast(narrow: bool) -> None:
    seen = set()
    multiply = torch.baddbmm

    def watched(*matrices: Tensor, **factors: float) -> Tensor:
        result = multiply(*matrices, **factors)
        seen.add(result.dtype)
        return result

    model = tiny_transformer()
    optimizer = build_optimizer(OptimizerConfig("muon", bfloat16=narrow), model)
    gradients(model, 1)
    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
        patch.setattr(torch, "baddbmm", watched)
        optimizer.step()
    assert seen == {torch.bfloat16 if narrow else torch.float32}


def test_a_copy_steps_alike_and_a_weight_without_a_gradient_stays() -> None:
    model = tiny_transformer()
    optimizer = build_optimizer(OptimizerConfig("muon", weight_decay=0.1), model)
    before = model.encoder.layers[0].feed_forward.inner.weight.detach().clone()
    model_copy, optimizer_copy = copy.deepcopy((model, optimizer))
    for each, stepping in ((model, optimizer), (model_copy, optimizer_copy)):
        gradients(each, 1)
        still = each.encoder.layers[0].feed_forward.inner.weight
        still.grad = None
        assert stepping.step(lambda: 2.5) == 2.5
        assert torch.equal(still, before)
    for weight, other in zip(model.parameters(), model_copy.parameters(), strict=True):
        assert torch.equal(weight, other)


def test_the_state_of_another_optimizer_is_refused() -> None:
    states = {}
    for name in ("adamw", "muon"):
        model = tiny_transformer()
        optimizer = build_optimizer(OptimizerConfig(name), model)  # type: ignore[arg-type]
        gradients(model, 1)
        optimizer.step()
        saved = states[name] = optimizer.state_dict()
        assert optimizer_state([saved], optimizer)["state"].keys() == saved["state"].keys()
        for group in saved["param_groups"]:
            kept = {key: value for key, value in group.items() if key not in ("betas", "params")}
            assert {type(value) for value in kept.values()} <= {int, float, bool, type(None)}
    with pytest.raises(InputError, match=r"optimizer\.name"):
        optimizer_state([states["adamw"]], optimizer)


def gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        whole = torch.randn(weight.shape, generator=generator)
        if isinstance(weight, DTensor):
            whole = distribute_tensor(whole, weight.device_mesh, weight.placements)
        weight.grad = whole


def stepped(model: nn.Module) -> dict[str, Tensor]:
    config = OptimizerConfig("muon", weight_decay=0.1, bfloat16=False)
    optimizer = build_optimizer(config, model)
    for seed in range(3):
        gradients(model, seed)
        optimizer.step()
    return {
        name: weight.full_tensor() if isinstance(weight, DTensor) else weight.detach()
        for name, weight in model.named_parameters()
    }


def in_one_rank() -> nn.Module:
    # Three ranks share out neither the matrices nor their rows evenly; one has no row of four.
    torch.manual_seed(1)
    return tiny_transformer(d_model=20, num_heads=5, head_dim=4, num_kv_heads=1, ffn_dim=28)


def step_in_a_rank(rank: int, folder: Path, sharded: bool) -> None:
    model = in_one_rank()
    if sharded:
        shard(model, init_device_mesh("cpu", (dist.get_world_size(),)), "32-true")
    torch.save(stepped(model), folder / f"{rank}.pt")


@pytest.mark.thorough
@pytest.mark.parametrize("sharded", [False, True])
def test_ranks_step_as_one_process_does(sharded: bool, tmp_path: Path) -> None:
    assert in_ranks(3, step_in_a_rank, tmp_path, sharded) == [0, 0, 0]
    expected = stepped(in_one_rank())
    for rank in range(3):
        weights = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, weight in expected.items():
            torch.testing.assert_close(weights[name], weight, rtol=1e-5, atol=1e-6)
