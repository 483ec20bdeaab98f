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
from transformer.training.checkpointing import BestCheckpoint
from transformer.training.model_selection import ModelSelection

DATA = DataConfig(source="en", target="de")
TRAINING = [("the dog sleeps", "der Hund schläft"), ("two birds sing", "zwei Vögel singen")] * 150
SOURCES = ["a dog", "two", "three cats", "four", "five"]
REFERENCES = [("",), ("",), ("drei Katzen",), ("vier",), ("fünf",)]


def sample(limit: int) -> list[Pair]:
    return TRAINING[:limit]


def validated(checks: QualityChecks, trainer: Mock, module: Mock) -> None:
    checks.on_validation_epoch_end(trainer, module)
    checks.on_validation_end(trainer, module)


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
        validated(checks, trainer, module)
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
    validated(checks, trainer, module)
    assert Thresholds.read(tmp_path, DATA) == replace(usual, low_confidence=-1.0)
    # They are those of the best model, which translates new text.
    best = BestCheckpoint(tmp_path, ModelSelection("val/bleu", "max"))
    best.best = (20.0, 1.0)
    trainer.callbacks.append(best)
    for bleu, lowest in ((19.0, -1.0), (21.0, -2.0)):
        trainer.callback_metrics = {"val/bleu": bleu, "val/loss": 1.0}
        validation.latest = validation.latest._replace(outputs=[Output("vier", -2.0)] * 200)
        validated(checks, trainer, module)
        assert Thresholds.read(tmp_path, DATA).low_confidence == lowest
    # A full disk stops no training.
    trainer.default_root_dir = str(tmp_path / "missing")
    with caplog.at_level(logging.WARNING):
        validated(checks, trainer, module)
    assert "flags of new text use other thresholds" in caplog.text
