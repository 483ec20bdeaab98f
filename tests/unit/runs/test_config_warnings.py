"""What a run is told of its settings before it begins."""

import logging
from pathlib import Path

import pytest

from tests.helpers.runs.runs import composed
from transformer.common.processor import PROCESSORS
from transformer.runs.config_warnings import warn_about_config

RISES = "schedule.warmup=50: the learning rate still rises when training ends"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["schedule.warmup=50", "trainer.max_steps=50"], RISES),
        (["schedule.warmup=50", "trainer.max_steps=51"], ""),
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


@pytest.mark.parametrize(
    ("overrides", "kind", "advised"),
    [
        (["precision=bf16-mixed"], "amd-avx2", True),
        (["precision=32-true", "loss.bfloat16=true"], "intel-vnni", True),
        (["precision=bf16-mixed"], "amd-avx512", False),
        (["precision=32-true", "loss.bfloat16=false"], "amd-avx2", False),
        (["precision=auto", "loss.bfloat16=auto"], "amd-avx2", False),
        (["precision=bf16-mixed"], "other", False),  # unknown
    ],
)
def test_bfloat16_wants_its_instructions(
    overrides: list[str],
    kind: str,
    advised: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("transformer.training.precision.processor", lambda: PROCESSORS[kind])
    warn_about_config(composed(["data=multi30k", *overrides], tmp_path))
    assert ("try precision=auto" in caplog.text) is advised
