"""What only the run can check, since it sees the config, the tokenizer and the trainer at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning import Callback, Trainer

from tests.helpers.runs.runs import composed
from transformer.checkpoint.checkpoint import PORTABLE, Portable
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.runs import train
from transformer.settings.run import RunConfig
from transformer.tasks.registry import make_task
from transformer.tasks.translation import TranslationModule
from transformer.training.callbacks.best_score import Objective, Patience
from transformer.training.checkpointing import Resumable
from transformer.training.distributed.ddp import ReplicatedStrategy
from transformer.training.model_selection import ModelSelection
from transformer.training.trainer import build_trainer, end_reason

SELECTION = ModelSelection("val/bleu", "max")


def payload_of(config: RunConfig) -> dict[str, Any]:
    trained = replace(config, model=config.model.sized(9, 9))
    return {"global_step": 1, PORTABLE: Portable(trained, {}).to_plain()}


def test_two_vocabularies_of_one_size_cannot_share_an_embedding(tmp_path: Path) -> None:
    tokenizer = Mock(spec=Tokenizer, same_ids=False, source_vocab_size=9, target_vocab_size=9)
    for tied in ("all", "inputs"):
        config = composed([f"model.tie_embeddings={tied}"], tmp_path)
        with pytest.raises(InputError, match=f"tie_embeddings={tied} needs one vocabulary"):
            TranslationModule.build_model(config, tokenizer)
    apart = composed(["model.tie_embeddings=decoder"], tmp_path)
    model = TranslationModule.build_model(apart, tokenizer)
    assert model.config.tie_embeddings == "decoder"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_missing_gpu_is_an_error_before_the_text_is_read(tmp_path: Path) -> None:
    config = composed(["data=files", "data.train=missing.tsv", "trainer=ddp"], tmp_path)
    command = "trainer.accelerator=cpu trainer.devices=2"
    with pytest.raises(InputError, match=f"no GPU here; on a CPU train with {command}$"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_runs_that_would_replace_or_change_another_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed([], tmp_path)
    resumed = replace(config, checkpoint=tmp_path / "run")
    with pytest.raises(InputError, match=r"run resumes in its own folder, not .*other"):
        train.train(resumed, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    saved = Resumable(Path("run"), payload_of(config))
    monkeypatch.setattr(train, "find_resumable", lambda path: saved)
    changed = replace(resumed, metrics=replace(config.metrics, choose="chrf"))
    with pytest.raises(InputError, match=r"metrics\.choose cannot change"):
        train.fit(changed, tmp_path)
    with pytest.raises(InputError, match="trained for task=tagging; it cannot continue with task="):
        make_task(config, payload_of(RunConfig(task="tagging")))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(InputError, match=r"\(hydra\.sweep\.dir=FOLDER\)$"):
        train.train(config, tmp_path, objective=Objective("val/bleu"))


def test_the_trainer_has_the_callbacks_in_their_order(tmp_path: Path) -> None:
    keys = ["callbacks.ema_decay=0.99", "callbacks.patience=3", "trainer.val_check_interval=6"]
    config = composed([*keys, "trainer.devices=2"], tmp_path)
    trainer = build_trainer(config, tmp_path, [Callback()], SELECTION)
    assert trainer.val_check_interval == 6
    assert isinstance(trainer.strategy, ReplicatedStrategy)
    # The average must be in place before a validation translates; the last checkpoint has the
    # patience and the best score.
    order = ["MovingAverage", "Callback", "Patience", "BestCheckpoint", "LastCheckpoint"]
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    names = [type(callback).__name__ for callback in callbacks]
    assert [name for name in names if name in order] == order


@pytest.mark.parametrize(
    ("override", "bound", "done", "reached"),
    [
        ("trainer.max_steps=9", 9, 9, "all 9 updates of trainer.max_steps=9 are done"),
        ("trainer.max_steps=9", 9, 12, "has done 12 updates, more than trainer.max_steps=9"),
        ("trainer.max_epochs=2", 8, 8, "all 8 updates of trainer.max_epochs=2 are done"),
        ("trainer.max_time=00:00:00:00", 9, 7, "max_time=00:00:00:00 is over after update 7 of 9"),
        ("callbacks.patience=3", 9, 7, "callbacks.patience=3 has ended training after update 7"),
        ("trainer.max_time=00:00:00:09", 9, 7, "all 7 updates are done"),
    ],
)
def test_the_key_that_ended_a_run_is_known(
    tmp_path: Path, override: str, bound: int, done: int, reached: str
) -> None:
    config = composed([override], tmp_path)
    trainer = build_trainer(config, tmp_path, [], SELECTION)
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, Patience):
            callback.waited = 3
    ended = Mock(spec=Trainer, global_step=done, max_steps=bound, callbacks=callbacks)
    key, line = end_reason(ended, config)
    assert line.endswith(reached)
    assert key == override.partition("=")[0] or "max_epochs, trainer.max_time or" in key


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("trainer.accumulate_grad_batches=0", "must be at least 1"),
        ("trainer.gradient_clip_val=-1", "must be above 0"),
        ("trainer.max_epochs=0", "must be at least 1; -1 sets no bound"),
        ("seed=-1", "must be from 0 to 4294967295"),
    ],
)
def test_what_lightning_does_not_check_is_checked(tmp_path: Path, override: str, says: str) -> None:
    with pytest.raises(InputError, match=f"{override.split('=')[0]}.*{says}"):
        composed([override], tmp_path)
