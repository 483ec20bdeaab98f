"""The runner, with stages that only copy files: what runs, what runs again, and what does not."""

import os
import signal
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from transformer.common.errors import InputError, Interrupted
from transformer.recipes import runner
from transformer.recipes.plan import Stage

ALL = ["01_copy", "02_copy", "03_copy"]
CALL = runner.call


class Copies:
    """Three stages, each of which copies what the one before has written.

    ``ran`` are the stages that have ended well in the last call, ``log`` its lines, and ``fails``
    the exit codes of stages that fail.
    """

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self.folder = home, home / "r"
        self.ran, self.log, self.fails = list[str](), list[str](), dict[str, int]()
        self.verb, self.received = "select", None
        (home / "given").write_text("text")
        patch.setattr(runner, "call", self._call)

    def stages(self, second: int = 1, **free: str) -> list[Stage]:
        files = [self.home / "given", *(self.folder / f"0{n}_copy" / "out" for n in (1, 2, 3))]
        return [
            Stage(
                folder=output.parent,
                verb=self.verb,
                settings=(f"value={second if number == 2 else 1}", *map("=".join, free.items())),
                keys={"input": source, "output": output},
                outputs=(output,),
            )
            for number, (source, output) in enumerate(pairwise(files), 1)
        ]

    def run(self, second: int = 1, **free: str) -> list[str]:
        """Run the recipe, the second stage with a setting; returns the stages that ran."""
        self.folder.mkdir(exist_ok=True)
        self.ran.clear()
        self.log.clear()
        runner.run_stages(self.stages(second, **free), self.home / "cache", self.log.append)
        return list(self.ran)

    def states(self, second: int = 1) -> list[str]:
        return list(runner.states(self.stages(second), self.home / "cache"))

    def _call(self, stage: Stage) -> tuple[int, int | None]:
        if code := self.fails.get(stage.name):
            (stage.folder / "part").touch()
            return code, None
        self.ran.append(stage.name)
        stage.outputs[0].write_bytes(
            stage.inputs[0].read_bytes() + stage.settings[0].removeprefix("value=1").encode()
        )
        return 0, self.received


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copies:
    return Copies(tmp_path, monkeypatch)


def test_what_is_done_is_skipped_and_resumes_after_an_error(copies: Copies) -> None:
    copies.fails = {"02_copy": 2}
    with pytest.raises(Interrupted, match="02_copy has ended with exit code 2; the same") as failed:
        copies.run()
    assert failed.value.code == 2 and copies.ran == ["01_copy"]
    copies.fails = {}
    assert copies.states() == ["done", "resumes", "new"]
    assert copies.run() == ["02_copy", "03_copy"]
    assert copies.log[0] == "01_copy: done before"
    assert copies.run() == [] and copies.states() == ["done"] * 3


@pytest.mark.parametrize(("verb", "kept"), [("train", True), ("translate", True), ("text", False)])
def test_only_what_resumes_keeps_what_it_has_written(copies: Copies, verb: str, kept: bool) -> None:
    copies.verb, copies.fails = verb, {"02_copy": -signal.SIGKILL}
    with pytest.raises(Interrupted) as killed:
        copies.run()
    assert killed.value.code == 137
    copies.fails = {}
    assert copies.run() == ["02_copy", "03_copy"]
    assert (copies.folder / "02_copy" / "part").exists() is kept


def test_another_command_runs_again_and_what_reads_its_output(copies: Copies) -> None:
    copies.verb = "train"
    copies.run()
    (copies.folder / "02_copy" / "old").touch()
    assert copies.states(second=2)[1:] == [
        "starts again, command has changed",
        "starts again if its inputs change",
    ]
    assert copies.run(second=2) == ["02_copy", "03_copy"]
    assert (copies.folder / "03_copy" / "out").read_text() == "text" + "value=2"
    assert (copies.folder / "02_copy.old-1" / "old").exists()
    assert copies.log[2].endswith(f"is kept as {copies.folder / '02_copy.old-1'}")
    assert (copies.folder / "03_copy.old-1" / "out").read_text() == "text"
    assert copies.run() == ["02_copy", "03_copy"]
    assert (copies.folder / "02_copy.old-2" / "out").read_text() == "textvalue=2"
    assert "03_copy: starts again, 02_copy/out has changed: " in copies.log[-3]


def test_only_another_text_of_an_input_runs_again(copies: Copies) -> None:
    copies.run(device="cpu")
    (copies.home / "given").write_text("another")
    assert copies.run() == ALL
    os.utime(copies.home / "given", (0, 0))
    assert copies.run() == []
    (copies.folder / "01_copy" / "out").unlink()
    # It writes the same once more: nothing else has to.
    assert copies.run() == ["01_copy"]
    assert copies.log[0].startswith("01_copy: starts again, 01_copy/out is missing: ")
    copies.folder = copies.folder.rename(copies.home / "it's another")
    # The key says where it computes, not what.
    assert copies.run(device="cuda") == []


def test_a_folder_that_is_not_the_runners_is_kept(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = copies.folder / "02_copy" / "out"
    output.parent.mkdir(parents=True)
    output.touch()
    with pytest.raises(InputError, match="02_copy exists, and no recipe has made it"):
        copies.run(second=2)
    output.unlink()
    copies.run()
    # A lock of this process would not hold this process off.
    monkeypatch.setattr(runner, "is_locked", lambda folder: folder.name == "02_copy")
    with pytest.raises(InputError, match="02_copy exists, and a process still trains in it"):
        copies.run(second=2)
    assert output.exists()


@pytest.mark.parametrize("text", ["", '{"sha256": 3, "done": true}'])
def test_a_stage_with_a_damaged_marker_starts_again(copies: Copies, text: str) -> None:
    copies.run()
    (copies.folder / "02_copy.json").write_text(text)
    assert "02_copy" in copies.run()
    assert (copies.folder / "02_copy.old-1" / "out").exists()


def test_a_missing_file_is_told_before_anything_runs(copies: Copies) -> None:
    (copies.home / "given").unlink()
    with pytest.raises(InputError, match="given: no such file"):
        copies.run()
    assert not (copies.folder / "01_copy").exists()


def test_a_signal_stops_before_the_next_stage(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.received = signal.SIGUSR1
    with pytest.raises(Interrupted, match="stopped by SIGUSR1 after 01_copy") as stopped:
        copies.run()
    assert stopped.value.code == 128 + signal.SIGUSR1
    copies.received = None
    assert copies.run() == ["02_copy", "03_copy"]
    # Between two stages.
    monkeypatch.setattr(runner, "_digests", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted, match="stopped by SIGTERM; the same command"):
        copies.run()


def test_a_signal_reaches_the_stage(tmp_path: Path) -> None:
    """A stage that waits for ever: what it reads is a pipe that nobody writes to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keys = {"nbest": pipe, "reference": pipe, "output": tmp_path / "01_select" / "o"}
    stage = Stage(tmp_path / "01_select", "select", (), keys, ())
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    code, received = CALL(stage)
    # -N: the stage had not yet read its arguments.
    assert code in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert received == signal.SIGTERM
    timer.join()
