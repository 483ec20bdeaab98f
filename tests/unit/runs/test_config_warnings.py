"""What a run is told of its settings before it begins."""

import logging
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.helpers.runs.runs import composed
from transformer.common.processor import PROCESSORS
from transformer.data.datamodules.base import BatchModule
from transformer.runs.config_warnings import warn_about_config, warn_about_vocabulary
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import Algorithm, TokenizerConfig

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


@pytest.mark.parametrize(
    ("size", "algorithm", "tokens", "message"),
    [
        (60_000, "bpe", 225_000, "each occurs 7.5 times on average, too seldom to be learned; try"),
        (10_000, "bpe", 400_000, ""),
        (400, "bpe", 1000, ""),
        (60_000, "words", 225_000, ""),
    ],
)
def test_a_vocabulary_for_more_text(
    size: int, algorithm: Algorithm, tokens: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = Mock(spec=BatchModule)
    data.tokenizer = Mock()
    data.tokenizer.source_vocab_size = data.tokenizer.target_vocab_size = size
    # Two sides of one vocabulary.
    data.lengths.return_value = {"train": (np.full(1000, tokens // 1000),) * 2}
    config = RunConfig(tokenizer=TokenizerConfig(algorithm))
    warn_about_vocabulary(config, data)
    assert message in caplog.text and bool(message) is bool(caplog.text)
    assert not message or caplog.text.rstrip().endswith("try tokenizer.vocab_size=4000")
    # The vocabulary of a trained model is what it is.
    caplog.clear()
    warn_about_vocabulary(replace(config, finetune_from=Path("run")), data)
    assert not caplog.text
