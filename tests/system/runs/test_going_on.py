"""Runs that go on: elsewhere, further, with other keys, by themselves."""

import shutil
import signal
from pathlib import Path

import pytest
import torch

from tests.helpers.runs.faults import SignalAt
from tests.helpers.runs.outcomes import assert_equals_whole, differences, outcome, said
from tests.helpers.runs.processes import call, finish, tiny_config, tiny_overrides
from transformer.checkpoint.run_directory import is_finished


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and a run that nothing has stopped."""
    folder = tmp_path_factory.mktemp("home")
    finish(tiny_config(folder), folder / "whole")
    return folder


def test_a_run_from_its_best_does_not_validate_again(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(home / "whole", folder)
    checkpoints = folder / "checkpoints"
    (folder / "finished").unlink()
    shutil.copy(checkpoints / "best.ckpt", checkpoints / "last.ckpt")
    best = torch.load(checkpoints / "best.ckpt", weights_only=True)
    assert best["callbacks"]["LastCheckpoint"] == {"validates": False}
    finish(tiny_config(home), folder)
    assert_equals_whole(home, folder)


@pytest.mark.thorough
def test_a_finished_run_goes_on_only_with_a_later_end(home: Path, tmp_path: Path) -> None:
    shorter = tiny_config(home, "trainer.max_steps=16", "schedule.total=30")
    folder = tmp_path / "run"
    finish(shorter, folder)
    logs = {"said", "train.log"}
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in logs]
    before = {path: path.read_bytes() for path in files}
    finish(shorter, folder)
    assert "is finished: there is nothing to train or test" in said(folder)
    assert [path.name for path, text in before.items() if path.read_bytes() != text] == []
    finish(tiny_config(home), folder)
    assert "changed: trainer.max_steps: 16 before, 30 now" in said(folder)
    assert_equals_whole(home, folder)


def test_a_run_without_test_does_not_see_the_test_set(home: Path, tmp_path: Path) -> None:
    finish(tiny_config(home, "test=false", "trainer.max_steps=4"), tmp_path / "run")
    assert is_finished(tmp_path / "run")
    assert outcome(tmp_path / "run")["last"]["global_step"] == 4
    assert not list((tmp_path / "run").glob("test*"))
    again = tiny_config(home, "trainer.max_steps=4", "decoding.length_penalty=0.5")
    finish(again, tmp_path / "run")
    assert (tmp_path / "run" / "test.json").exists()
    assert "scores from here on are of another search: best.ckpt stays" in said(tmp_path / "run")
    assert "nothing to train or test" not in said(tmp_path / "run")


@pytest.mark.thorough
def test_keys_given_on_resume_have_their_effect(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    finish(tiny_config(home), folder, SignalAt("on_train_batch_end", 4, signal.SIGTERM), 143)
    changed = [
        "optimizer.lr=0.5",
        "optimizer.name=adamw",
        "optimizer.betas=[0.5,0.6]",
        "optimizer.weight_decay=0.25",
        "schedule=constant",
        "schedule.warmup=0",
        "trainer.max_steps=5",
        "callbacks.keep_last=0",
    ]
    finish(tiny_config(home, *changed), folder)
    last = outcome(folder)["last"]
    groups = last["optimizer_states"][0]["param_groups"]
    for group, decay in zip(groups, (0.25, 0.0), strict=True):
        assert (group["lr"], tuple(group["betas"]), group["weight_decay"]) == (
            0.5,
            (0.5, 0.6),
            decay,
        )
        assert group["decoupled_weight_decay"]
    assert not list((folder / "checkpoints").glob("step-*"))
    # Another model is refused in one line.
    finish(tiny_config(home, "model.ffn_dim=32", "trainer.max_steps=40"), folder, code=2)
    assert said(folder).strip().split("\n")[-1].startswith("error: model.ffn_dim cannot change")
    # A bound that leaves most pairs out ends it, as it does a new run.
    bounds = ["data.max_length=3", "data.max_left_out=0.1", "trainer.max_steps=40"]
    finish(tiny_config(home, *changed[:-2], *bounds), folder, code=2)
    assert "data.max_left_out=1 (now 0.1)" in said(folder)


def test_the_same_command_goes_on_by_itself(home: Path, tmp_path: Path) -> None:
    command = [*tiny_overrides(home), "checkpoint=auto"]
    assert call(command, tmp_path, SignalAt("on_train_batch_end", 5, signal.SIGTERM)) == 143
    assert "no unfinished run has this config: a new one begins" in said(tmp_path)
    (first,) = (tmp_path / "runs" / "files").iterdir()
    assert call(command, tmp_path) == 0
    assert f"resuming {first}, the newest unfinished run" in said(tmp_path)
    assert list(first.parent.iterdir()) == [first]
    assert differences(outcome(home / "whole"), outcome(first)) == []
    named = [*command, f"hydra.run.dir={first}"]
    assert call(named, tmp_path) == 0
    assert "is finished: there is nothing to train or test" in said(tmp_path)
    assert call([*named, "tokenizer.vocab_size=280"], tmp_path) == 2
    assert "holds a run with another tokenizer.vocab_size" in said(tmp_path)
    # A call without checkpoint= would begin anew, and one with an earlier end has nothing to do.
    assert call([*tiny_overrides(home), f"hydra.run.dir={first}"], tmp_path) == 2
    assert call([f"checkpoint={first}", "trainer.max_steps=3", "seed=9"], tmp_path) == 0
    assert "Traceback" not in said(tmp_path)


@pytest.mark.thorough
def test_a_vocabulary_too_large_for_the_text_is_made_smaller(home: Path, tmp_path: Path) -> None:
    sized = [*tiny_overrides(home), "trainer.max_steps=6"]
    command = [one for one in sized if not one.startswith("tokenizer.vocab_size=")]
    assert call([*sized, "tokenizer.vocab_size=8000", "hydra.run.dir=exact"], tmp_path) == 2
    assert "error: vocabulary size 8000 is too large" in said(tmp_path)
    auto = [*command, "checkpoint=auto", "test=false"]
    assert call(auto, tmp_path, SignalAt("on_train_batch_end", 3, signal.SIGTERM)) == 143
    warning = "warning: tokenizer.vocab_size=8000 is too large for this text; "
    assert said(tmp_path).count(warning) == 1
    size = int(said(tmp_path).split(warning)[1].split(",")[0])
    (run,) = (tmp_path / "runs" / "files").iterdir()
    assert call(auto, tmp_path) == 0
    assert call([f"checkpoint={run}", "trainer.max_steps=8"], tmp_path) == 0
    assert list(run.parent.iterdir()) == [run]
    payload = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    portable = payload["transformer"]
    assert payload["global_step"] == 8
    assert portable["config"]["tokenizer"]["vocab_size"] == size
    assert portable["config"]["model"]["source_vocab_size"] == size


@pytest.mark.thorough
def test_sharded_weights_go_on_with_the_rate_and_the_validation_that_are_due(
    home: Path, tmp_path: Path
) -> None:
    """A cosine that ends with the run, stopped in the middle and in its last validation."""
    sharded = ["trainer.strategy=fsdp", "callbacks.ema_decay=0", "test=false"]
    length = ["trainer.max_steps=14", "trainer.val_check_interval=8", "schedule=cosine"]
    begin = [f"finetune_from={home / 'whole'}"]
    config = tiny_config(home, *sharded, *length, *begin)
    finish(config, tmp_path / "whole")
    finish(config, tmp_path / "run", SignalAt("on_train_batch_end", 4, signal.SIGTERM), 143)
    # Before the first update, after update 8, and at the end.
    finish(config, tmp_path / "run", SignalAt("translate", 2, signal.SIGTERM), 143)
    assert not is_finished(tmp_path / "run")
    finish(config, tmp_path / "run")
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []
