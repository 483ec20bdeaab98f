"""The checks of a run: faults of its text once, failures of each validation, thresholds on disk."""

import logging
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.helpers.training.fakes import fake_module, fake_trainer, logged
from transformer.data.text.parallel import Pair
from transformer.quality.failures.flags import Output
from transformer.quality.failures.thresholds import Thresholds
from transformer.runs import callbacks
from transformer.runs.callbacks import QualityChecks
from transformer.settings.data import DataConfig
from transformer.tasks.translation import TranslateValidation, ValidationOutputs

DATA = DataConfig(source="en", target="de")
TRAINING = [("the dog sleeps", "der Hund schläft"), ("two birds sing", "zwei Vögel singen")] * 150
SOURCES = ["a dog", "two", "three cats", "four", "five"]
REFERENCES = [("",), ("",), ("drei Katzen",), ("vier",), ("fünf",)]


def sample(limit: int) -> list[Pair]:
    return TRAINING[:limit]


def test_flags_are_logged_and_their_thresholds_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    examined: list[DataConfig] = []
    monkeypatch.setattr(callbacks, "log_faults", examined.append)
    trainer, module = fake_trainer(default_root_dir=str(tmp_path)), fake_module()
    trainer.datamodule.training_sample = sample
    validation = Mock(spec=TranslateValidation)
    outputs = [Output(text, -1.0) for text in ("ein Hund", "zwei", "", "vier", "fünf")]
    validation.latest = ValidationOutputs(SOURCES, REFERENCES, outputs)
    trainer.callbacks = [validation]
    checks = QualityChecks(DATA)
    # After a divergence training starts again; only the first rank examines the text.
    for _ in range(2):
        checks.on_fit_start(trainer, module)
    other = fake_trainer(is_global_zero=False)
    other.datamodule.training_sample = sample
    QualityChecks(DATA).on_fit_start(other, module)
    assert examined == [DATA]
    for _ in range(2):
        checks.on_validation_epoch_end(trainer, module)
    first, second = logged(module)
    assert first == second and first["val/failures/empty"] == 100 / len(SOURCES)
    # Only the references that were flagged have a column.
    assert "val/failures/copy" in first and "val/failures/copy_reference" not in first
    assert first["val/failures/empty_reference"] == 100 * 2 / len(SOURCES)
    usual = Thresholds.fit(TRAINING, DATA)
    assert usual.tails is not None and Thresholds.read(tmp_path, DATA) == usual
    # 200 outputs define a low confidence.
    many = [Output("vier", -1.0)] * 200
    validation.latest = ValidationOutputs(SOURCES * 40, REFERENCES * 40, many)
    checks = QualityChecks(DATA)
    checks.on_fit_start(trainer, module)
    checks.on_validation_epoch_end(trainer, module)
    assert Thresholds.read(tmp_path, DATA) == replace(usual, low_confidence=-1.0)
    # A full disk stops no training.
    trainer.default_root_dir = str(tmp_path / "missing")
    with caplog.at_level(logging.WARNING):
        checks.on_validation_epoch_end(trainer, module)
    assert "flags of new text use other thresholds" in caplog.text
