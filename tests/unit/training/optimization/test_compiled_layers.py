"""What ``trainer.compile=auto`` compiles on which device."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.common.errors import InputError
from transformer.runs import train
from transformer.settings.data import DataConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig
from transformer.settings.training import TrainerConfig
from transformer.training.optimization import compile_choice, compiled_layers

CHECK = compiled_layers.check_compiler


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices that the compiler is tried on, which works; no other cache is changed."""
    tried: list[str] = []
    compile_choice._compiler_error.cache_clear()
    monkeypatch.setattr(
        compiled_layers, "check_compiler", lambda device, cache: tried.append(str(device))
    )
    monkeypatch.setitem(os.environ, "TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.delitem(os.environ, "TORCHINDUCTOR_CACHE_DIR")
    return tried


def chosen(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, **settings: Any
) -> compile_choice.CompileChoice:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    trainer = TrainerConfig("gpu" if gpu else "cpu", compile=settings.pop("compile", "auto"))
    config = RunConfig(trainer=trainer, **settings)
    return compile_choice.compile_choice(config)


@pytest.mark.parametrize(
    ("given", "gpu", "model", "expected"),
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
    given: str,
    gpu: bool,
    model: dict[str, Any],
    expected: Any,
    compiler: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = chosen(monkeypatch, gpu, compile=given, model=ModelConfig(**model))
    assert found == compile_choice.CompileChoice(expected)
    assert compiler == ([] if expected == "none" else ["cuda" if gpu else "cpu"])


def test_without_a_compiler_only_a_choice_is_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(device: torch.device, cache: Path) -> None:
        raise InputError("no compiler")

    monkeypatch.setattr(compiled_layers, "check_compiler", fail)
    assert chosen(monkeypatch, True) == compile_choice.CompileChoice("none", "no compiler")
    train._log_compiler(RunConfig(trainer=TrainerConfig("gpu")))
    assert "nothing is compiled, so training is slower: no compiler" in caplog.text
    with pytest.raises(InputError, match="no compiler"):
        chosen(monkeypatch, True, compile="loss")


def test_what_is_compiled_is_kept_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    monkeypatch.setenv("HOME", str(tmp_path))
    folders: list[Path] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            compiled_layers, "check_compiler", lambda device, cache: folders.append(cache)
        )
        chosen(monkeypatch, True, data=DataConfig(cache="~/kept"))
    assert folders == [tmp_path / "kept" / "compiled"]
    for given, expected in ((None, str(tmp_path)), ("elsewhere", "elsewhere")):
        if given:
            monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", given)
        CHECK(torch.device("cpu"), tmp_path)
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == expected
