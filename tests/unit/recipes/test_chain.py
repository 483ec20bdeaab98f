"""The chain and its manifest, with stages that only copy files."""

import json
import os
import signal
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from transformer.errors import InputError, Interrupted
from transformer.recipes.chain import Processes, StageFailed, run_chain
from transformer.recipes.manifest import Manifest
from transformer.recipes.stage import Stage


class Copies:
    """Three stages, each of which copies what the one before has written."""

    def __init__(self, home: Path) -> None:
        self.home, self.done = home, list[str]()
        self.code, self.fails_in = 0, ""
        (home / "given").write_text("text")

    def plan(self, value: int = 1) -> list[Stage]:
        files = [self.home / "given", *(self.home / "r" / f"0{n}_copy" / "out" for n in (1, 2, 3))]
        return [
            Stage(
                name=output.parent.name,
                verb="text",
                arguments=("output=x",),
                config={"value": value, "device": "cpu", "seed": number},
                inputs=(source,),
                outputs=(output,),
                folder=output.parent,
            )
            for number, (source, output) in enumerate(pairwise(files), 1)
        ]

    def __call__(self, stage: Stage) -> int:
        if stage.name == self.fails_in:
            return self.code
        self.done.append(stage.name)
        stage.outputs[0].write_bytes(stage.inputs[0].read_bytes())
        return 0

    def run(self, redo_from: str | None = None, **settings: int) -> list[str]:
        (self.home / "r").mkdir(exist_ok=True)
        self.done.clear()
        manifest = Manifest(self.home / "r", "copies")
        run_chain(self.plan(**settings), manifest, lambda line: None, self, redo_from)
        return list(self.done)


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path)


def test_what_is_done_is_not_done_again(copies: Copies) -> None:
    copies.fails_in, copies.code = "02_copy", 2
    with pytest.raises(StageFailed, match="02_copy has ended with exit code 2; when") as failed:
        copies.run()
    assert failed.value.code == 2
    copies.fails_in = ""
    assert copies.run() == ["02_copy", "03_copy"]
    assert copies.run() == []


def test_a_killed_stage_ends_it_as_a_shell_says(copies: Copies) -> None:
    copies.fails_in, copies.code = "01_copy", -signal.SIGKILL
    with pytest.raises(StageFailed) as failed:
        copies.run()
    assert failed.value.code == 137


def test_what_was_refused_before_it_wrote_anything_may_become_another(copies: Copies) -> None:
    copies.fails_in, copies.code = "01_copy", 2
    with pytest.raises(StageFailed):
        copies.run()
    assert [path.name for path in (copies.home / "r").iterdir() if path.is_dir()] == []
    copies.fails_in = ""
    assert copies.run(value=2) == ["01_copy", "02_copy", "03_copy"]


@pytest.mark.parametrize("file", ["given", "r/01_copy/out", "r/03_copy/out"])
def test_what_changes_is_refused_wherever_it_is(copies: Copies, file: str) -> None:
    copies.run()
    (copies.home / file).write_text("another")
    with pytest.raises(
        InputError, match=rf"{file} has changed since; give .* or redo_from=0\d_copy"
    ):
        copies.run()
    (copies.home / file).unlink()
    with pytest.raises(InputError, match=rf"{file} is missing; "):
        copies.run()
    assert copies.done == []


def test_another_setting_is_refused_and_another_device_is_not(copies: Copies) -> None:
    copies.run()
    with pytest.raises(
        InputError, match="r/01_copy was made of something else: value: 1 before, 2"
    ):
        copies.run(value=2)
    manifest = copies.home / "r" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    assert copies.run() == []


def test_it_is_done_again_if_that_is_wished(copies: Copies) -> None:
    copies.run()
    assert copies.run("02_copy") == ["02_copy", "03_copy"]
    assert copies.run("01_copy", value=2) == ["01_copy", "02_copy", "03_copy"]
    with pytest.raises(InputError, match="redo_from=4 is not a stage; choose one of 01_copy, 02"):
        copies.run("4")


def test_a_folder_that_no_manifest_knows_is_not_taken_for_a_stage(copies: Copies) -> None:
    (copies.home / "r" / "02_copy").mkdir(parents=True)
    with pytest.raises(InputError, match=r"02_copy is there, and .*manifest.json does not say"):
        copies.run()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"recipe": "copies"}'])
def test_a_damaged_manifest_is_one_line(copies: Copies, text: str) -> None:
    copies.run()
    (copies.home / "r" / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json cannot be read .*; restore it"):
        copies.run()


def test_another_recipe_or_another_plan_is_refused(copies: Copies) -> None:
    copies.run()
    with pytest.raises(InputError, match="r is of recipe=copies; give another output="):
        Manifest(copies.home / "r", "distill")
    manifest = Manifest(copies.home / "r", "copies")
    with pytest.raises(
        InputError, match="03_copy is not a stage of this call; give another output"
    ):
        manifest.check(copies.plan()[:2])


def test_it_says_of_every_stage_what_made_what(copies: Copies) -> None:
    copies.run()
    stages = json.loads((copies.home / "r" / "manifest.json").read_text())["stages"]
    assert [entry["name"] for entry in stages] == ["01_copy", "02_copy", "03_copy"]
    digests = {
        digest for one in stages for k in ("inputs", "outputs") for digest in one[k].values()
    }
    assert len(digests) == 1
    assert stages[0]["command"] == "python -m transformer text output=x"
    assert stages[1]["seeds"] == {"seed": 2}
    assert set(stages[0]["version"]) >= {"commit", "python", "torch", "transformer"}


def test_what_no_stage_makes_must_be_there(copies: Copies) -> None:
    (copies.home / "given").unlink()
    with pytest.raises(InputError, match="given: no such file; 01_copy reads it"):
        copies.run()


def test_a_signal_reaches_the_stage_and_no_other_begins(tmp_path: Path) -> None:
    """A stage that waits for ever: what it reads is a pipe that nobody writes to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = (f"nbest={pipe}", f"reference={pipe}", f"output={tmp_path}/o")
    stage = Stage("01_select", "select", arguments, {}, (), (), tmp_path)
    processes = Processes()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    assert processes(stage) == -signal.SIGTERM
    timer.join()
    with pytest.raises(Interrupted, match="stopped by SIGTERM before 01_select") as stopped:
        processes(stage)
    assert stopped.value.code == 143
