"""What a run is told of its settings before it begins."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.helpers.runs.runs import composed
from transformer.common.processor import PROCESSORS
from transformer.data.datamodules.base import BatchModule
from transformer.runs.config_warnings import (
    warn_about_config,
    warn_about_tokenization,
    warn_about_vocabulary,
    warn_about_warmup,
)
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import Algorithm, TokenizerConfig
from transformer.settings.training import ScheduleConfig, TrainerConfig

NARROW = "try precision=auto loss.bfloat16=auto"


@pytest.mark.parametrize(
    ("overrides", "processor", "message"),
    [
        # The rate of the experiment that pocket brings goes before the factor of the schedule.
        (
            ["schedule=noam", "model.d_model=64", "schedule.warmup=100", "optimizer.lr=4e-3"],
            "other",
            "never exceeds 5e-05",
        ),
        (["schedule=noam", "optimizer.lr=1.0"], "other", ""),
        (["precision=bf16-mixed"], "amd-avx2", NARROW),
        (["precision=32-true", "loss.bfloat16=true"], "intel-vnni", NARROW),
        (["precision=bf16-mixed"], "amd-avx512", ""),
        (["precision=auto", "loss.bfloat16=auto"], "amd-avx2", ""),
        (["loss.consistency_weight=5"], "other", "loss.consistency_weight=5 has no effect without"),
        (["loss=r_drop"], "other", "two passes, which are equal without dropout"),
        (["loss=r_drop", "model.layer_drop=0.1"], "other", ""),
        (["data.temperature=5"], "other", "data.temperature=5 has no effect without data.corpora"),
        (
            ["data.temperature=5", "data=files", "data.corpora={a:{train:x.tsv,weight:1.0}}"],
            "other",
            "data.temperature=5 has no effect beside the weights",
        ),
        (["precision=bf16-mixed"], "other", ""),  # unknown
        (["optimizer=muon"], "other", ""),
        (
            ["optimizer=muon", "model.lora_rank=4", "finetune_from=x"],
            "other",
            "as by optimizer=adamw",
        ),
    ],
)
def test_settings_that_cannot_be_meant_are_warned_about(
    overrides: list[str],
    processor: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("transformer.training.precision.processor", lambda: PROCESSORS[processor])
    config = composed(["schedule=cosine", "trainer.max_steps=10000", *overrides], tmp_path)
    warn_about_config(config)
    assert message in caplog.text and bool(message) is bool(caplog.text)


@pytest.mark.parametrize(
    ("max_steps", "end_of_epochs", "says"),
    [
        (50, -1, "after 50 updates; in a run that is to learn, set it lower or trainer.max_steps"),
        (51, -1, ""),
        (90, 40, "after 40 updates; in a run that is to learn, set it lower or trainer.max_epochs"),
        (-1, 40, "or trainer.max_epochs higher"),
        (40, 90, "or trainer.max_steps higher"),
        (-1, -1, ""),
    ],
)
def test_a_run_that_ends_in_its_warmup_is_warned_about(
    max_steps: int, end_of_epochs: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = ScheduleConfig("constant", warmup=50)
    config = RunConfig(schedule=schedule, trainer=TrainerConfig(max_steps=max_steps))
    warn_about_warmup(config, end_of_epochs)
    assert says in caplog.text and bool(says) is bool(caplog.text)


@pytest.mark.parametrize(
    ("size", "algorithm", "tokens", "advised"),
    [
        (60_000, "bpe", 225_000, 4000),
        (10_000, "bpe", 400_000, None),
        (400, "bpe", 1000, None),
        (60_000, "words", 225_000, None),
    ],
)
def test_a_vocabulary_for_more_text(
    size: int,
    algorithm: Algorithm,
    tokens: int,
    advised: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = Mock(spec=BatchModule)
    data.tokenizer = Mock(source_vocab_size=size, target_vocab_size=size)
    # Two sides of one vocabulary.
    data.lengths.return_value = {"train": (np.full(1000, tokens // 1000),) * 2}
    config = RunConfig(tokenizer=TokenizerConfig(algorithm))
    warn_about_vocabulary(config, data)
    if advised is None:
        assert not caplog.text
    else:
        assert "each occurs 7.5 times" in caplog.text
        assert caplog.text.rstrip().endswith(f"try tokenizer.vocab_size={advised}")
    # The vocabulary of a trained model is what it is.
    caplog.clear()
    warn_about_vocabulary(replace(config, finetune_from=Path("run")), data)
    assert not caplog.text


@pytest.mark.parametrize(
    ("reference", "tokenize", "advised"),
    [
        ("彼は毎朝七時に学校へ行きます。", "13a", "ja-mecab"),
        ("他每天早上七点去学校，下午五点回家。", "none", "zh"),
        ("เขาไปโรงเรียนทุกเช้า", "13a", "char"),
        ("他每天早上七点去学校，下午五点回家。约翰・史密斯先生也去，晚上七点回家。", "13a", "zh"),
        ("彼 は 毎朝 七 時 に 学校 へ 行き ます 。", "none", None),
        ("彼は毎朝七時に学校へ行きます。", "char", None),
        ("그는 매일 아침 일곱 시에 학교에 간다.", "13a", None),
        ("Donaudampfschifffahrtsgesellschaft 東京", "13a", None),
    ],
)
def test_bleu_of_scripts_without_spaces(
    reference: str, tokenize: str, advised: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    config = RunConfig(metrics=MetricsConfig(tokenize=tokenize))
    warn_about_tokenization(config, [(reference,)])
    assert bool(caplog.text) is (advised is not None)
    assert f"word; metrics.tokenize={advised}" in caplog.text or advised is None
    # Another metric does not divide text into words.
    caplog.clear()
    metrics = MetricsConfig(tokenize=tokenize, validation=("chrf",), choose="chrf")
    warn_about_tokenization(RunConfig(metrics=metrics), [(reference,)])
    assert not caplog.text
