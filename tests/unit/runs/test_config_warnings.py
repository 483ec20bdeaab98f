"""What a run is told of its settings before it begins."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.runs import composed
from transformer.runs.config_warnings import warn_about_config

LACKING = "float32 is probably faster here: try"


@pytest.mark.parametrize(
    ("overrides", "there", "advice"),
    [
        (["precision=bf16-mixed", "loss.bfloat16=false"], {"avx2": True}, "precision=32-true"),
        (
            ["precision=32-true", "loss.bfloat16=true"],
            {"avx512_bf16": False},
            "loss.bfloat16=false",
        ),
        (
            ["precision=bf16-mixed", "loss.bfloat16=true"],
            {"avx2": True},
            "precision=32-true loss.bfloat16=false",
        ),
        (["precision=bf16-mixed"], {"avx512_bf16": True}, None),
        (["precision=bf16-mixed"], {"amx_bf16": True}, None),
        (["precision=bf16-mixed"], {}, None),
        (["precision=32-true", "loss.bfloat16=false"], {"avx2": True}, None),
        (["precision=bf16-mixed", "trainer=gpu"], {"avx2": True}, None),
    ],
)
def test_a_processor_without_bfloat16_is_told_of(
    overrides: list[str],
    there: dict[str, bool],
    advice: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: there, raising=False)
    with caplog.at_level(logging.WARNING):
        warn_about_config(composed(overrides, tmp_path))
    assert [record.message.partition(LACKING)[2] for record in caplog.records] == (
        [] if advice is None else [f" {advice}"]
    )


def test_where_torch_cannot_tell_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    with caplog.at_level(logging.WARNING):
        warn_about_config(composed(["precision=bf16-mixed"], tmp_path))
    assert not caplog.text


def test_a_warm_up_beyond_the_last_update_is_told_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    config = composed(["schedule.warmup=50"], tmp_path)
    with caplog.at_level(logging.WARNING):
        warn_about_config(replace(config, trainer=dict(config.trainer) | {"max_steps": 51}))
        assert not caplog.text
        warn_about_config(replace(config, trainer=dict(config.trainer) | {"max_steps": 50}))
    assert "schedule.warmup=50: the learning rate still rises when training ends" in caplog.text


@pytest.mark.parametrize(
    ("total", "says"), [(50, "the cosine ends at schedule.total=50"), (51, "")]
)
def test_a_cosine_that_ends_in_the_warm_up_is_told_of(
    total: int, says: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    overrides = ["schedule=cosine", "schedule.warmup=50", f"schedule.total={total}"]
    with caplog.at_level(logging.WARNING):
        warn_about_config(composed([*overrides, "trainer.max_steps=100"], tmp_path))
    assert says in caplog.text and bool(says) is bool(caplog.text)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        # The rate of the experiment that pocket brings goes before the factor of the schedule.
        (["model.d_model=64", "schedule.warmup=100", "optimizer.lr=4e-3"], "never exceeds 5e-05"),
        (["optimizer.lr=1.0"], ""),
        (["optimizer.lr=4e-3", "schedule=cosine"], ""),
    ],
)
def test_a_rate_that_is_taken_for_a_factor_is_told_of(
    overrides: list[str], says: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_about_config(composed(["schedule=noam", *overrides], tmp_path))
    assert says in caplog.text and bool(says) is bool(caplog.text)
