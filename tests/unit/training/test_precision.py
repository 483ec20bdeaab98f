"""The precision of a run by its device; bfloat16 only in the matrix products."""

from dataclasses import replace

import pytest
import torch

from transformer.common.processor import PROCESSORS
from transformer.settings.training import TrainerConfig
from transformer.training.precision import resolve_precision, search_autocast


@pytest.mark.parametrize(
    ("precision", "accelerator", "has_bfloat16", "resolved", "products"),
    [
        ("auto", "gpu", True, "bf16-mixed", "high"),
        ("auto", "gpu", False, "32-true", "high"),
        ("auto", "cpu", True, "bf16-mixed", "highest"),
        ("auto", "cpu", False, "32-true", "highest"),
        ("auto", "mps", True, "32-true", "highest"),
        ("32-true", "gpu", True, "32-true", "highest"),
    ],
)
def test_auto_is_the_fastest_of_the_device(
    precision: str,
    accelerator: str,
    has_bfloat16: bool,
    resolved: str,
    products: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: accelerator == "gpu")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    row = replace(PROCESSORS["other"], bfloat16=has_bfloat16)
    monkeypatch.setattr("transformer.training.precision.processor", lambda: row)
    try:
        config = TrainerConfig(precision=precision, accelerator=accelerator)
        assert resolve_precision(config) == replace(config, precision=resolved)
        assert torch.get_float32_matmul_precision() == products
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_search_on_a_gpu_is_as_precise_as_training(
    precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a GPU torch would refuse it.
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    with search_autocast(precision, torch.device(device)):
        narrow = torch.is_autocast_enabled(device)
    assert narrow == ((precision, device) == ("bf16-mixed", "cuda"))
