"""What only the run can check, since it sees the config, the tokenizer and the trainer at once."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from torch import distributed as dist

from tests.helpers.runs.runs import composed
from transformer.checkpoint.checkpoint import PORTABLE, Portable
from transformer.checkpoint.trust import TRUST
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.runs import train
from transformer.settings.run import RunConfig
from transformer.tasks.base import Task
from transformer.tasks.registry import make_task
from transformer.tasks.translation import TranslationModule
from transformer.training.callbacks.best_score import Objective, Patience
from transformer.training.checkpointing import Resumable
from transformer.training.distributed.ddp import ReplicatedStrategy
from transformer.training.model_selection import ModelSelection
from transformer.training.trainer import build_trainer, end_reason


def test_two_vocabularies_of_one_size_cannot_share_an_embedding(tmp_path: Path) -> None:
    tokenizer = Mock(spec=Tokenizer, same_ids=False, source_vocab_size=9, target_vocab_size=9)
    with pytest.raises(InputError, match="needs one vocabulary"):
        TranslationModule.build_model(composed([], tmp_path), tokenizer)
    apart = composed(["model.tie_embeddings=decoder"], tmp_path)
    model = TranslationModule.build_model(apart, tokenizer)
    assert model.config.tie_embeddings == "decoder"
    # Nor does a run go on with another task.
    payload = _payload(RunConfig(task="tagging"))
    with pytest.raises(
        InputError, match="trained for task=tagging; it cannot continue with task=tr"
    ):
        make_task(composed([], tmp_path), payload)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
@pytest.mark.parametrize(
    ("trainer", "command"),
    [("gpu", "trainer=cpu"), ("ddp", "trainer.accelerator=cpu trainer.devices=2")],
)
def test_a_missing_gpu_is_an_error_before_the_text_is_read(
    tmp_path: Path, trainer: str, command: str
) -> None:
    config = composed(["data=files", "data.train=missing.tsv", f"trainer={trainer}"], tmp_path)
    with pytest.raises(InputError, match=f"no GPU here; on a CPU train with {command}$"):
        train.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_several_processes_train_by_torch_ddp(tmp_path: Path, strategy: str) -> None:
    processes = ["trainer.devices=2", f"trainer.strategy={strategy}"]
    config = composed(processes, tmp_path)
    chosen = build_trainer(config, tmp_path, [], ModelSelection("val/bleu", "max")).strategy
    assert isinstance(chosen, ReplicatedStrategy)


def test_callbacks_are_called_in_order(tmp_path: Path) -> None:
    keys = ["callbacks.ema_decay=0.99", "callbacks.patience=3", "callbacks.keep_last=2"]
    config = composed([*keys, "trainer.val_check_interval=6"], tmp_path)
    selection = ModelSelection("val/x", "min")
    trainer = build_trainer(config, tmp_path, [Callback()], selection)
    assert trainer.val_check_interval == 6
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    # The average must be in place before a validation translates; the last checkpoint has the
    # patience and the best score.
    names = [type(callback).__name__ for callback in callbacks]
    order = ["MovingAverage", "Callback", "Patience", "BestCheckpoint", "LastCheckpoint"]
    assert [name for name in names if name in order] == order
    assert all(getattr(callback, "selection", selection) == selection for callback in callbacks)
    without = composed(["callbacks.ema_decay=0", "callbacks.patience=null"], tmp_path)
    trainer = build_trainer(without, tmp_path, [], selection)
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    names = [type(callback).__name__ for callback in callbacks]
    assert not {"MovingAverage", "Patience"} & {*names}


def test_what_is_left_out_is_judged_where_a_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = []

    def make_task(config: RunConfig, payload: object) -> Task:
        task = Mock(spec=Task)
        task.data = Mock(max_left_out=config.data.max_left_out)
        task.data.prepare_data.side_effect = lambda: allowed.append(task.data.max_left_out)
        task.data.setup.side_effect = InputError("enough")
        return task

    monkeypatch.setattr(train, "make_task", make_task)
    monkeypatch.setattr(train, "find_resumable", lambda path: _resumable(composed([], tmp_path)))
    for checkpoint in ("null", str(tmp_path)):
        with pytest.raises(InputError, match="enough"):
            train.fit(composed([f"checkpoint={checkpoint}"], tmp_path), tmp_path)
    assert allowed == [0.5, 1.0]


def _payload(config: RunConfig) -> dict[str, Any]:
    trained = replace(config, model=config.model.sized(9, 9))
    return {PORTABLE: Portable(trained, {}).to_plain()}


def _resumable(config: RunConfig) -> Resumable:
    return Resumable(Path("run"), {"global_step": 1, **_payload(config)})


def test_a_program_resumes_with_what_the_run_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(composed([], tmp_path), checkpoint=tmp_path)
    monkeypatch.setattr(train, "find_resumable", lambda path: _resumable(config))
    other = replace(config, metrics=replace(config.metrics, choose="chrf"))
    with pytest.raises(InputError, match=r"metrics\.choose cannot change: a run resumes with what"):
        train.fit(other, tmp_path)


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
    trainer = build_trainer(config, tmp_path, [], ModelSelection("val/bleu", "max"))
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, Patience):
            callback.waited = 3
    ended = Mock(spec=Trainer, global_step=done, max_steps=bound, callbacks=callbacks)
    key, line = end_reason(ended, config)
    assert line.endswith(reached)
    assert key == override.partition("=")[0] or "max_epochs, trainer.max_time or" in key


def test_the_command_that_resumes_a_run_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRUST)
    monkeypatch.chdir(tmp_path)
    for root, trust in (("here", ""), (tmp_path.parent, " trust=true")):
        config = composed(["data=g2p", "data.lang=bul", f"data.root={root}"], tmp_path)
        monkeypatch.setenv("TRANSFORMER_CACHE", config.data.cache)
        assert train.resume_arguments(config, Path("run")) == f"checkpoint=run{trust}", needs_trust(
            config
        )


def test_a_run_may_go_on_without_the_callbacks_it_had(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    build_trainer(composed([], tmp_path), tmp_path, [], ModelSelection("val/bleu", "max"))
    recwarn.clear()
    warnings.warn("Be aware that when using `ckpt_path`, callbacks used to", stacklevel=1)
    assert not recwarn.list


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


def test_ranks_part_at_the_end_of_a_good_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's exit would wait for rank 0, which tests the model first."""
    config = composed([], tmp_path)
    trained = Mock(spec=Trainer, global_step=9, max_steps=9, callbacks=[])
    prepared = config, Mock(spec=Task), train.ResumeState(None, 0, None)
    monkeypatch.setattr(train, "_prepare", lambda *_: prepared)
    monkeypatch.setattr(train, "_fit", lambda *_: trained)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert train.fit(config, tmp_path)[0] is trained
    assert not dist.is_initialized()


def test_a_run_goes_on_in_its_own_folder(tmp_path: Path) -> None:
    config = replace(composed([], tmp_path), checkpoint=tmp_path / "one")
    with pytest.raises(InputError, match=r"one resumes in its own folder, not .*other"):
        train.train(config, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_trial_of_a_sweep_replaces_no_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    trial = Objective("val/bleu")
    with pytest.raises(
        InputError, match=r"with checkpoint=auto, or .* \(hydra\.sweep\.dir=FOLDER\)$"
    ):
        train.train(composed([], tmp_path), tmp_path, objective=trial)
