"""What a run is told of its settings before it begins."""

import logging
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
        # torch before 2.13 cannot tell.
        (["precision=bf16-mixed"], None, None),
        (["precision=32-true", "loss.bfloat16=false"], {"avx2": True}, None),
        (["precision=bf16-mixed", "trainer=gpu"], {"avx2": True}, None),
    ],
)
def test_a_processor_without_bfloat16_is_told_of(
    overrides: list[str],
    there: dict[str, bool] | None,
    advice: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: there, raising=False)
    if there is None:
        monkeypatch.delattr(torch.cpu, "get_capabilities")
    with caplog.at_level(logging.WARNING):
        warn_about_config(composed(overrides, tmp_path))
    assert [record.message.partition(LACKING)[2] for record in caplog.records] == (
        [] if advice is None else [f" {advice}"]
    )


RISES = "schedule.warmup=50: the learning rate still rises when training ends"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["schedule.warmup=50", "trainer.max_steps=50"], RISES),
        (["schedule.warmup=50", "trainer.max_steps=51"], ""),
        (["schedule.warmup=50", "schedule.total=50"], "the cosine ends at schedule.total=50"),
        (["schedule.warmup=50", "schedule.total=51"], ""),
        # The rate of the experiment that pocket brings goes before the factor of the schedule.
        (
            ["schedule=noam", "model.d_model=64", "schedule.warmup=100", "optimizer.lr=4e-3"],
            "never exceeds 5e-05",
        ),
        (["schedule=noam", "optimizer.lr=1.0"], ""),
        (["schedule=cosine", "optimizer.lr=4e-3"], ""),
    ],
)
def test_schedules_that_cannot_be_meant_are_warned_about(
    overrides: list[str], message: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    config = composed(["schedule=cosine", "trainer.max_steps=10000", *overrides], tmp_path)
    with caplog.at_level(logging.WARNING):
        warn_about_config(config)
    assert message in caplog.text and bool(message) is bool(caplog.text)
