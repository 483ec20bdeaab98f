"""The precision of a run, by its device."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from transformer.common.processor import PROCESSORS
from transformer.settings.training import TrainerConfig
from transformer.training.precision import resolve_precision, search_autocast


def test_auto_is_the_fastest_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for precision, accelerator, has_bfloat16, resolved, products in (
        ("auto", "gpu", True, "bf16-mixed", "high"),
        ("auto", "gpu", False, "32-true", "high"),
        ("auto", "cpu", True, "bf16-mixed", "highest"),
        ("auto", "cpu", False, "32-true", "highest"),
        ("auto", "mps", True, "32-true", "highest"),
        ("32-true", "gpu", True, "32-true", "highest"),
    ):
        row = replace(PROCESSORS["other"], bfloat16=has_bfloat16)
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "is_available", Mock(return_value=accelerator == "gpu"))
            patch.setattr(torch.cuda, "is_bf16_supported", Mock(return_value=has_bfloat16))
            patch.setattr("transformer.training.precision.processor", Mock(return_value=row))
            config = TrainerConfig(precision=precision, accelerator=accelerator)
            assert resolve_precision(config) == replace(config, precision=resolved)
        set_to = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        assert set_to == products


def test_a_search_on_a_gpu_is_as_precise_as_training(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a GPU torch would refuse it.
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
    for precision in ("bf16-mixed", "32-true"):
        for device in ("cuda", "cpu"):
            with search_autocast(precision, torch.device(device)):
                narrow = torch.is_autocast_enabled(device)
            assert narrow == ((precision, device) == ("bf16-mixed", "cuda"))
