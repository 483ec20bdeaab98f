"""Recomputed layers leave the same gradient and keep less; what ``trainer.compile`` compiles."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.model.models import tiny_config, tiny_transformer
from transformer.common.errors import InputError
from transformer.model.head_masks import HeadName
from transformer.model.single_stack import build_single_stack
from transformer.model.transformer import Transformer
from transformer.runs import train
from transformer.settings.data import DataConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig
from transformer.settings.training import TrainerConfig
from transformer.training import layer_wrappers
from transformer.training.layer_wrappers import (
    CompileChoice,
    check_compiler,
    compile_choice,
    recompute_layers,
)
from transformer.training.losses.guided_alignment import watching

SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
TARGET = torch.tensor([[1, 5, 9, 7], [1, 6, 0, 0]])
RANDOM = {"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.1}
FLEX = {"attention_dropout": 0.0}  # flex drops no weights


def assert_same_gradients(
    forgetful: nn.Module,
    kept: nn.Module,
    run: Callable[[Any], Tensor] = lambda model: model(SOURCE, TARGET),
) -> None:
    """The gradients of two models with the same weights and random numbers are the same."""
    found = []
    for model in (forgetful, kept):
        model.train()
        torch.manual_seed(7)
        run(model).square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for mine, expected in zip(*found, strict=True):
        assert (mine is None) is (expected is None)
        assert mine is None or expected is None or torch.equal(mine, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layer_drop": 0.4},
        {"share_layers": "all"},
        {"share_layers": "attention"},
        {"attention": "eager", "norm_order": "post"},
        {"positions": "rotary", "pattern": "sliding"},
        {"positions": "relative", "attention": "eager"},
        {"positions": "relative", "pattern": "sliding", "attention": "flex", **FLEX},
    ],
)
def test_the_gradient_is_the_same_bit_for_bit(changes: dict[str, Any]) -> None:
    kept, forgetful = (tiny_transformer(**(RANDOM | changes)) for _ in range(2))
    recompute_layers(forgetful)
    assert_same_gradients(forgetful, kept)


@contextmanager
def bytes_kept() -> Iterator[list[int]]:
    """Of the tensors that the backward pass will need, each storage once."""
    seen: dict[int, int] = {}
    total: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield total
    total.append(sum(seen.values()))


def test_less_is_kept() -> None:
    kept = []
    for forgetful in (False, True):
        model = tiny_transformer(encoder_layers=6, decoder_layers=6, **RANDOM).train()
        if forgetful:
            recompute_layers(model)
        with bytes_kept() as total:
            model(SOURCE.repeat(64, 1), TARGET.repeat(64, 1))
        kept += total
    assert kept[1] < kept[0] / 4


def test_a_stack_alone_recomputes_too() -> None:
    stacks = []
    for _ in range(2):
        torch.manual_seed(1)
        stacks.append(build_single_stack(tiny_config(decoder_layers=0, **RANDOM), causal=True))
    recompute_layers(stacks[0])
    assert_same_gradients(*stacks, run=lambda model: model(TARGET))


def test_what_guided_alignment_looks_at_is_still_there() -> None:
    def run(model: Transformer) -> Tensor:
        with watching(model, HeadName("cross", 0, 1)) as looked:
            hidden = model(SOURCE, TARGET)
        return torch.cat([hidden.flatten(), looked[0].flatten()])

    kept, forgetful = (tiny_transformer(**RANDOM) for _ in range(2))
    recompute_layers(forgetful, forgetful.decoder.layers[0].cross_attention)
    assert_same_gradients(forgetful, kept, run=run)


def test_translating_is_left_alone() -> None:
    model, forgetful = tiny_transformer(), tiny_transformer()
    recompute_layers(forgetful)
    for each in (model, forgetful):
        each.eval()
    with torch.inference_mode():
        results = []
        for each in (model, forgetful):
            cache = each.start(each.encode(SOURCE))
            steps = [each.decode(TARGET[:, i : i + 1], cache) for i in range(TARGET.size(1))]
            results.append(torch.cat(steps, dim=1))
    assert torch.equal(*results)


def chosen(
    monkeypatch: pytest.MonkeyPatch, cache: Path, *, gpu: bool, compiles: bool = True, **config: Any
) -> CompileChoice:
    """The choice on a device whose compiler works or not."""

    def check(device: torch.device, folder: Path) -> None:
        assert device.type == ("cuda" if gpu else "cpu")
        assert folder == cache / "compiled"
        if not compiles:
            raise InputError("no compiler")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(layer_wrappers, "check_compiler", check)
    trainer = TrainerConfig("gpu" if gpu else "cpu", compile=config.pop("compile", "auto"))
    run = RunConfig(trainer=trainer, data=DataConfig(cache=str(cache)), **config)
    train._log_compiler(run)
    return compile_choice(run)


@pytest.mark.parametrize(
    ("wanted", "gpu", "model", "expected"),
    [
        ("auto", False, {}, "none"),
        ("auto", True, {}, "layers"),
        ("auto", True, {"decoder_pattern": "sliding"}, "loss"),
        ("auto", True, {"decoder_pattern": "sliding", "attention": "sdpa"}, "layers"),
        ("loss", True, {}, "loss"),
        ("layers", False, {}, "layers"),
        ("none", True, {}, "none"),
    ],
)
def test_auto_compiles_on_a_gpu(
    wanted: str,
    gpu: bool,
    model: dict[str, Any],
    expected: Literal["none", "loss", "layers"],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = chosen(monkeypatch, tmp_path, gpu=gpu, compile=wanted, model=ModelConfig(**model))
    assert found == CompileChoice(expected)


def test_without_a_compiler_only_a_choice_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = chosen(monkeypatch, tmp_path, gpu=True, compiles=False)
    assert found == CompileChoice("none", "no compiler")
    assert "training is slower: no compiler" in caplog.text
    with pytest.raises(InputError, match="no compiler"):
        chosen(monkeypatch, tmp_path, gpu=True, compiles=False, compile="loss")


@pytest.mark.parametrize("given", [None, "elsewhere"])
def test_compiled_code_is_in_the_cache_unless_the_user_says_so(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", given or "")
    if given is None:
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    check_compiler(torch.device("cpu"), tmp_path)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == (given or str(tmp_path))
