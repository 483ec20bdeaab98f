"""The checks of a run: faults of its text once, failures of each validation, thresholds on disk."""

import logging
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.helpers.training.fakes import fake_module, fake_trainer, logged
from transformer.data.text.parallel import Pair
from transformer.quality.failures.flags import Detector, Output
from transformer.quality.failures.thresholds import Thresholds
from transformer.runs import callbacks
from transformer.runs.callbacks import QualityChecks
from transformer.settings.data import DataConfig
from transformer.tasks.translation import TranslateValidation, ValidationOutputs

DATA = DataConfig(source="en", target="de")
TRAINING = [("the dog sleeps", "der Hund schläft"), ("two birds sing", "zwei Vögel singen")] * 150
SOURCES = ["a dog", "two", "three cats", "four", "five"]
REFERENCES = [("",), ("",), ("drei Katzen",), ("vier",), ("fünf",)]


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[DataConfig]:
    """The texts that were examined for faults."""
    texts: list[DataConfig] = []
    monkeypatch.setattr(callbacks, "log_faults", texts.append)
    return texts


def translated(texts: list[str]) -> TranslateValidation:
    """A validation with these outputs."""
    validation = Mock(spec=TranslateValidation)
    validation.latest = ValidationOutputs(SOURCES, REFERENCES, [Output(t, -1.0) for t in texts])
    return validation


def sample(limit: int) -> list[Pair]:
    return TRAINING[:limit]


def test_flags_are_logged_and_their_thresholds_are_kept(
    tmp_path: Path,
    examined: list[DataConfig],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    flagged: list[str] = []
    flags = Detector.flags

    def recorded(self: Detector, source: str, output: Output, *rest: str) -> tuple[str, ...]:
        flagged.append(output.text)
        return flags(self, source, output, *rest)

    monkeypatch.setattr(Detector, "flags", recorded)
    outputs = ["ein Hund", "zwei", "", "vier", "fünf"]
    trainer, module = fake_trainer(default_root_dir=str(tmp_path)), fake_module()
    trainer.callbacks = [translated(outputs)]
    trainer.datamodule.training_sample = sample
    checks = QualityChecks(DATA)
    checks.on_fit_start(trainer, module)
    for _ in range(2):
        checks.on_validation_epoch_end(trainer, module)
    first, second = logged(module)
    assert first == second and first["val/failures/empty"] == 100 / len(SOURCES)
    # Only the references that were flagged have a column, and they are looked at once.
    assert "val/failures/copy" in first and "val/failures/copy_reference" not in first
    assert first["val/failures/empty_reference"] == 100 * 2 / len(SOURCES)
    assert (flagged.count("ein Hund"), flagged.count("drei Katzen")) == (2, 1)
    usual = Thresholds.fit(TRAINING, DATA)
    assert usual.tails is not None and Thresholds.read(tmp_path, DATA) == usual
    # 200 outputs define a low confidence.
    trainer.callbacks = [translated(outputs)]
    trainer.callbacks[0].latest = ValidationOutputs(
        *(SOURCES * 40, REFERENCES * 40, [Output("vier", -1.0)] * 200)
    )
    checks = QualityChecks(DATA)
    checks.on_fit_start(trainer, module)
    checks.on_validation_epoch_end(trainer, module)
    assert Thresholds.read(tmp_path, DATA) == replace(usual, low_confidence=-1.0)
    assert "val/failures/low_confidence" not in logged(module)[-1]
    # A full disk stops no training.
    trainer.default_root_dir = str(tmp_path / "missing")
    with caplog.at_level(logging.WARNING):
        checks.on_validation_epoch_end(trainer, module)
    assert "flags of new text use other thresholds" in caplog.text


def test_the_text_is_examined_once_by_one_rank(examined: list[DataConfig]) -> None:
    checks, other = QualityChecks(DATA), QualityChecks(DATA)
    for rank, callback in enumerate((checks, other)):
        trainer = fake_trainer(is_global_zero=not rank)
        trainer.datamodule.training_sample = sample
        # After a divergence training starts again.
        for _ in range(2):
            callback.on_fit_start(trainer, fake_module())
    assert examined == [DATA]
