"""What goes to a service, and that no error of it reaches the training."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.helpers.training.fakes import fake_module, fake_trainer
from transformer.common import errors
from transformer.common.errors import InputError
from transformer.settings.training import LoggerConfig, WandbConfig
from transformer.training.callbacks.loggers import ContinuedCSVLogger
from transformer.training.callbacks.remote_loggers import (
    ContinuedRecords,
    RemoteLogger,
    build_remote_loggers,
)


def test_a_record_goes_on_with_what_it_does_not_have(tmp_path: Path) -> None:
    service = Mock(version="abc")
    asked: list[str | None] = []

    def build(found: str | None) -> Mock:
        asked.append(found)
        return service

    logger, saved = RemoteLogger("wandb", build, {"seed": 1}), {"global_step": 2}
    trainer = fake_trainer(loggers=[logger])
    ContinuedRecords().on_train_start(trainer, fake_module())
    ContinuedRecords().on_save_checkpoint(trainer, fake_module(), saved)
    assert saved["records"] == {"wandb": "abc"}
    service.log_hyperparams.assert_called_once_with({"seed": 1})

    csv, again = ContinuedCSVLogger(tmp_path), RemoteLogger("wandb", build, {"seed": 2})
    for step in (0, 1, 2, 3):
        csv.log_metrics({"loss": 1.0}, step)
    resumed = fake_trainer(loggers=[csv, again])
    ContinuedRecords().on_load_checkpoint(resumed, fake_module(), saved)
    ContinuedRecords().on_train_start(resumed, fake_module())
    for step in (2, 3, 4):
        again.log_metrics({"loss": 1.0}, step)
    again.log_metrics({"val/loss": 2.0}, 3)
    assert asked == [None, "abc"]
    service.log_hyperparams.assert_called_once()
    assert [call.args for call in service.log_metrics.call_args_list] == [
        ({"loss": 1.0}, 4),
        ({"val/loss": 2.0}, 3),
    ]


@pytest.mark.parametrize("fails", ["build", "experiment", "log_metrics", "log_hyperparams"])
def test_no_error_of_a_service_reaches_the_training(
    fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Service:
        version = "abc"

        def __getattr__(self, name: str) -> Any:
            if name == fails:
                raise ConnectionError("no\nroute")
            return Mock()

    build = Mock(side_effect=[ConnectionError("no\nroute")] if fails == "build" else [Service()])
    logger = RemoteLogger("wandb", build, {})
    for step in range(3):
        logger.log_metrics({"loss": 1.0}, step)
    logger.finalize("success")
    assert [record.getMessage() for record in caplog.records] == ["logger=wandb stops: no route"]
    assert build.call_count == 1


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    config = LoggerConfig(csv=True, tensorboard=True, wandb=WandbConfig())
    with pytest.raises(InputError, match=r"logger=wandb needs wandb: pip install .*\[wandb\]"):
        build_remote_loggers(config, tmp_path, {})
