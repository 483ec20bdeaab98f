"""Recomputed layers leave the same gradient and keep less; what ``trainer.compile`` compiles."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError
from transformer.model.head_masks import HeadName
from transformer.model.transformer import Transformer
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


def assert_same_gradients(
    forgetful: nn.Module,
    kept: nn.Module,
    run: Callable[[Any], Tensor] = lambda model: model(SOURCE, TARGET),
) -> None:
    """The gradients of two models with the same weights and random numbers are the same."""
    gradients = []
    for model in (forgetful, kept):
        model.train()
        torch.manual_seed(7)
        run(model).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for recomputed, expected in zip(*gradients, strict=True):
        assert (recomputed is None) is (expected is None)
        assert recomputed is None or expected is None or torch.equal(recomputed, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layer_drop": 0.4},
        {"share_layers": "all"},
        {"positions": "rotary", "pattern": "sliding"},
        {"positions": "relative", "attention": "eager"},
    ],
)
def test_the_gradient_is_the_same_bit_for_bit(changes: dict[str, Any]) -> None:
    kept, forgetful = (tiny_transformer(**(RANDOM | changes)) for _ in range(2))
    recompute_layers(forgetful)
    assert_same_gradients(forgetful, kept)


def test_less_is_kept() -> None:
    model = tiny_transformer(encoder_layers=6, decoder_layers=6, **RANDOM).train()
    sizes = []
    for _ in range(2):
        stored: dict[int, int] = {}

        def pack(tensor: Tensor, stored: dict[int, int] = stored) -> Tensor:
            stored[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(SOURCE.repeat(64, 1), TARGET.repeat(64, 1))
        sizes.append(sum(stored.values()))
        recompute_layers(model)
    assert sizes[1] < sizes[0] / 4


def test_what_guided_alignment_looks_at_is_still_there() -> None:
    def run(model: Transformer) -> Tensor:
        with watching(model, HeadName("cross", 0, 1)) as looked:
            hidden = model(SOURCE, TARGET)
        return torch.cat([hidden.flatten(), looked[0].flatten()])

    kept, forgetful = (tiny_transformer(**RANDOM) for _ in range(2))
    recompute_layers(forgetful, forgetful.decoder.layers[0].cross_attention)
    assert_same_gradients(forgetful, kept, run=run)


def test_translating_is_left_alone() -> None:
    model = tiny_transformer().eval()
    results = []
    for _ in range(2):
        with torch.inference_mode():
            cache = model.start(model.encode(SOURCE))
            steps = [model.decode(TARGET[:, i : i + 1], cache) for i in range(TARGET.size(1))]
        results.append(torch.cat(steps, dim=1))
        recompute_layers(model)
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
    return compile_choice(RunConfig(trainer=trainer, data=DataConfig(cache=str(cache)), **config))


def test_auto_compiles_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sliding = ModelConfig(decoder_pattern="sliding")
    for wanted, gpu, model, expected in (
        ("auto", False, ModelConfig(), "none"),
        ("auto", True, ModelConfig(), "layers"),
        ("auto", True, sliding, "loss"),
        ("auto", True, replace(sliding, attention="sdpa"), "layers"),
        ("layers", False, ModelConfig(), "layers"),
    ):
        choice = chosen(monkeypatch, tmp_path, gpu=gpu, compile=wanted, model=model)
        assert (choice.parts, choice.error) == (expected, "")
    # Without a compiler only a choice is an error.
    without = tmp_path / "without"
    choice = chosen(monkeypatch, without, gpu=True, compiles=False)
    assert choice == CompileChoice("none", "no compiler")
    with pytest.raises(InputError, match="no compiler"):
        chosen(monkeypatch, without, gpu=True, compiles=False, compile="loss")


def test_compiled_code_is_in_the_cache_unless_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    check_compiler(torch.device("cpu"), tmp_path)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "elsewhere"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    check_compiler(torch.device("cpu"), tmp_path)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
