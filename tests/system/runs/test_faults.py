"""Runs that are killed, stopped and find no space, and go on as if nothing had happened."""

import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.runs.faults import DiskFull, KilledAt, SignalAt, random_fault
from tests.helpers.runs.outcomes import assert_equals_whole, differences, outcome, said
from tests.helpers.runs.processes import finish, start, tiny_config
from transformer.settings.run import RunConfig

EVERYTHING = [
    "tokenizer=unigram",
    "tokenizer.vocab_size=285",
    "tokenizer.sampling=0.2",
    "augmentation=robust",
    "data.workers=2",
    "trainer.accumulate_grad_batches=2",
    "callbacks.ema_decay=0.9",
    "callbacks.patience=5",
]

AT_ONCE = ("on_validation_batch_end", "translate", "prepare", "test")
"""Where no update is under way."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and a run that nothing has stopped."""
    folder = tmp_path_factory.mktemp("home")
    finish(tiny_config(folder), folder / "whole")
    return folder


def kill(config: RunConfig, folder: Path, kills: int, seed: int) -> None:
    """Kill runs until there were enough kills; each that comes to its end must equal the first."""
    whole, dice = folder / "whole", random.Random(seed)
    finish(config, whole)
    seconds = finish(config, folder / "again")
    expected = outcome(whole)
    assert differences(expected, outcome(folder / "again")) == []
    killed = run = 0
    while killed < kills:
        run += 1
        broken = folder / f"run-{run}"
        while True:
            # Half of the moments are within the writing of a file, which takes little of the time.
            fault = random_fault(dice) if dice.random() < 0.5 else None
            process = start(config, broken, fault)
            process.join(dice.uniform(0, 1.2 * seconds) if fault is None else 120)
            if process.exitcode is None:
                process.kill()
                process.join()
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL, said(broken)
            killed += 1
        assert differences(expected, outcome(broken)) == [], said(broken)
        print(f"run {run}: {killed} kills so far, equal")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kills", "overrides"),
    [(3, []), pytest.param(100, EVERYTHING, marks=pytest.mark.slow)],
    ids=["a few times", "often with everything"],
)
def test_killed_at_any_time(tmp_path: Path, kills: int, overrides: list[str]) -> None:
    kill(tiny_config(tmp_path, *overrides), tmp_path, kills, seed=1)


@pytest.mark.parametrize(
    "fault",
    [
        KilledAt("save", 2),
        pytest.param(KilledAt("replace", 3), marks=pytest.mark.thorough),
    ],
    ids=["half a second file", "between the renamings"],
)
def test_killed_while_writing(home: Path, tmp_path: Path, fault: KilledAt) -> None:
    config = tiny_config(home)
    finish(config, tmp_path / "run", fault, -signal.SIGKILL)
    finish(config, tmp_path / "run")
    assert_equals_whole(home, tmp_path / "run")


def thorough(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (SignalAt("on_train_batch_end", 4, signal.SIGTERM), 143),
        thorough(SignalAt("on_train_batch_end", 8, signal.SIGUSR1), 138),
        thorough(SignalAt("on_train_batch_end", 5, signal.SIGINT, signal.SIGINT), 130),
        thorough(SignalAt("on_validation_batch_end", 1, signal.SIGTERM), 143),
        # The validation after the last update, off the interval.
        thorough(SignalAt("translate", 4, signal.SIGTERM), 143),
        thorough(SignalAt("end", 1, signal.SIGTERM), 143),
        (SignalAt("prepare", 1, signal.SIGTERM), 143),
        thorough(SignalAt("test", 1, signal.SIGTERM), 143),
    ],
    ids=lambda value: value.hook if isinstance(value, SignalAt) else str(value),
)
def test_stopped_by_a_signal(home: Path, tmp_path: Path, fault: SignalAt, code: int) -> None:
    config, folder = tiny_config(home), tmp_path / "run"
    finish(config, folder, fault, code)
    begun = (folder / "checkpoints").exists()
    assert begun == (fault.hook != "prepare")
    how = (
        f"resume with transformer train checkpoint={folder}" if begun else "the same command again"
    )
    assert how in said(folder)
    if fault.hook == "end":
        assert torch.load(folder / "checkpoints" / "last.ckpt")["global_step"] == 30
    assert ("stopping after this update" in said(folder)) == (fault.hook not in AT_ONCE)
    finish(config, folder)
    assert_equals_whole(home, folder)
    assert (folder / "test.json").exists()
    assert "is finished" not in said(folder)


@pytest.mark.thorough
def test_where_the_disk_is_full_training_goes_on_or_ends(home: Path, tmp_path: Path) -> None:
    config, folder = tiny_config(home), tmp_path / "run"
    finish(config, folder, DiskFull(3, 6))
    assert "last.ckpt: cannot be written (No space left on device)" in said(folder)
    assert "training continues" in said(folder)
    one, other = outcome(home / "whole"), outcome(folder)
    assert differences(one["last"]["state_dict"], other["last"]["state_dict"]) == []
    assert differences(one["rows"], other["rows"]) == []
    # Where it stays full, a run ends in one line, and goes on later.
    folder = tmp_path / "full"
    finish(config, folder, DiskFull(6, 1000), code=2)
    assert said(folder).strip().split("\n")[-1].startswith("error: ")
    finish(config, folder)
    assert_equals_whole(home, folder)


@pytest.mark.thorough
def test_a_damaged_last_checkpoint_gives_way_to_the_one_before(home: Path, tmp_path: Path) -> None:
    config, folder = tiny_config(home), tmp_path / "run"
    finish(config, folder, KilledAt("save", 7), -signal.SIGKILL)
    last = folder / "checkpoints" / "last.ckpt"
    damaged = bytearray(last.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    last.write_bytes(damaged)
    finish(config, folder)
    assert "resuming from" in said(folder)
    [unused] = (folder / "checkpoints").glob("unused-last-*.ckpt")
    unused.unlink()
    assert_equals_whole(home, folder)
