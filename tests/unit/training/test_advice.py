"""What a run is told of its settings before it begins."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.runs import composed
from transformer.training.advice import warn_of_bfloat16, warn_of_warmup


@pytest.mark.parametrize("lacking", [{"avx2": True}, {"avx512_bf16": False, "sse": True}])
@pytest.mark.parametrize(
    ("overrides", "advice"),
    [
        (["precision=bf16-mixed", "loss.bfloat16=false"], "try precision=32-true"),
        (["precision=32-true", "loss.bfloat16=true"], "try loss.bfloat16=false"),
        (
            ["precision=bf16-mixed", "loss.bfloat16=true"],
            "try precision=32-true loss.bfloat16=false",
        ),
    ],
)
def test_a_processor_without_bfloat16_is_told_of(
    overrides: list[str],
    advice: str,
    lacking: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: lacking, raising=False)
    with caplog.at_level(logging.WARNING):
        warn_of_bfloat16(composed(overrides, tmp_path))
    assert caplog.text.rstrip().endswith(advice)


@pytest.mark.parametrize(
    ("overrides", "there"),
    [
        (["precision=bf16-mixed"], {"avx512_bf16": True}),
        (["precision=bf16-mixed"], {"amx_bf16": True}),
        (["precision=bf16-mixed"], {}),
        (["precision=32-true", "loss.bfloat16=false"], {"avx2": True}),
        (["precision=bf16-mixed", "trainer=gpu"], {"avx2": True}),
    ],
)
def test_of_others_nothing_is_said(
    overrides: list[str],
    there: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: there, raising=False)
    with caplog.at_level(logging.WARNING):
        warn_of_bfloat16(composed(overrides, tmp_path))
    assert not caplog.text


def test_where_torch_cannot_tell_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    with caplog.at_level(logging.WARNING):
        warn_of_bfloat16(composed(["precision=bf16-mixed"], tmp_path))
    assert not caplog.text


def test_a_warm_up_beyond_the_last_update_is_told_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    config = composed(["schedule.warmup=50"], tmp_path)
    with caplog.at_level(logging.WARNING):
        warn_of_warmup(replace(config, trainer=dict(config.trainer) | {"max_steps": 51}))
        assert not caplog.text
        warn_of_warmup(replace(config, trainer=dict(config.trainer) | {"max_steps": 50}))
    assert "schedule.warmup=50: the learning rate is to reach its peak after" in caplog.text
