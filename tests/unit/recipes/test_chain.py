"""The chain, with stages that only copy files."""

import json
import signal
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.copies import Copies
from transformer.common.errors import InputError
from transformer.recipes import manifest
from transformer.recipes.chain import StageFailed, run_chain
from transformer.recipes.entries import versions_of
from transformer.recipes.manifest import Manifest
from transformer.recipes.stage import Stage


def with_entries(copies: Copies, change: dict[str, Any], key: str) -> None:
    """Change what the manifest says of every stage."""
    file = copies.home / "r" / "manifest.json"
    values = json.loads(file.read_text())
    for entry in values["stages"]:
        entry[key] = {k: v for k, v in (entry[key] | change).items() if v is not None}
    file.write_text(json.dumps(values))


def test_what_is_done_is_not_done_again(copies: Copies) -> None:
    copies.fails_in, copies.code = "02_copy", 2
    with pytest.raises(StageFailed, match="02_copy has ended with exit code 2; when") as failed:
        copies.run()
    assert failed.value.code == 2
    copies.fails_in = ""
    assert copies.run() == ["02_copy", "03_copy"]
    assert copies.run() == []


def test_a_stage_that_was_killed_when_its_files_were_whole_is_not_done_again(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(manifest: Manifest, stage: Stage) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Manifest, "end", killed)
        with pytest.raises(KeyboardInterrupt):
            copies.run()
    assert copies.done == ["01_copy"]
    before = manifest.code_version()
    monkeypatch.setattr(manifest, "code_version", lambda: before | {"commit": "another"})
    assert copies.run() == ["02_copy", "03_copy"]
    file = copies.home / "r" / "manifest.json"
    first = json.loads(file.read_text())["stages"][0]
    assert versions_of(first) == [before], "it was not made by the code that found it whole"


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


def test_what_no_stage_makes_must_be_there(copies: Copies) -> None:
    (copies.home / "given").unlink()
    with pytest.raises(InputError, match="given: no such file; 01_copy reads it"):
        copies.run()


@pytest.mark.parametrize("changes_in", ["02_copy", "03_copy"])
def test_a_file_that_changes_between_two_stages_that_read_it(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, changes_in: str
) -> None:
    """It is read by the first and the third; changed while the second, or the third, works."""
    given, plan = copies.home / "given", copies.plan

    def reading_twice(value: int = 1) -> list[Stage]:
        *before, last = plan(value)
        return [*before, replace(last, inputs=(*last.inputs, given))]

    def changing(stage: Stage) -> int:
        if stage.name == changes_in:
            given.write_text("another text")
        return Copies.__call__(copies, stage)

    monkeypatch.setattr(copies, "plan", reading_twice)
    folder = copies.home / "r"
    folder.mkdir()
    since = "01_copy has read it" if changes_in == "02_copy" else "03_copy has begun"
    with pytest.raises(InputError, match=f"given has changed since {since}; give back"):
        run_chain(reading_twice(), lambda: Manifest(folder, "copies"), lambda _: None, changing)
    with pytest.raises(InputError, match=r"given has changed since; .* redo_from=01_copy"):
        copies.run()


def test_the_manifest_is_read_when_nobody_else_works_there(copies: Copies) -> None:
    """What another process did while this one waited for the folder is not done again."""
    copies.fails_in, copies.code = "02_copy", 143
    with pytest.raises(StageFailed):
        copies.run()
    (copies.home / "r" / "manifest.json").rename(copies.home / "r" / "away")

    def read() -> Manifest:
        (copies.home / "r" / "away").rename(copies.home / "r" / "manifest.json")
        return Manifest(copies.home / "r", "copies")

    copies.fails_in = ""
    copies.done.clear()
    run_chain(copies.plan(), read, lambda _: None, copies)
    assert copies.done == ["02_copy", "03_copy"]


def test_what_was_half_written_is_swept_where_it_is_written_anew(copies: Copies) -> None:
    copies.fails_in, copies.code = "02_copy", 2
    copies.leaves = ("out.4711.part", "mine.part")
    with pytest.raises(StageFailed, match=r"with other settings .*: redo_from=02_copy"):
        copies.run()
    copies.fails_in = ""
    copies.run()
    names = [path.name for path in (copies.home / "r" / "02_copy").iterdir()]
    assert sorted(names) == ["mine.part", "out"]


def test_the_text_is_made_anew_when_what_was_wrong_with_it_is_mended(copies: Copies) -> None:
    copies.verb, copies.fails_in, copies.code = "text", "01_copy", 2
    copies.leaves = ("out",)
    with pytest.raises(StageFailed, match="when what it says is mended, the same command goes on"):
        copies.run()
    copies.fails_in = ""
    (copies.home / "given").write_text("mended")
    assert copies.run() == ["01_copy", "02_copy", "03_copy"]
    assert (copies.home / "r" / "03_copy" / "out").read_text() == "mended"


def test_a_folder_that_no_manifest_knows_is_not_taken_for_a_stage(copies: Copies) -> None:
    (copies.home / "r" / "02_copy").mkdir(parents=True)
    with pytest.raises(InputError, match=r"02_copy is there, and .*manifest.json does not say"):
        copies.run()


def test_the_code_that_began_a_stage_is_told_beside_that_which_ended_it(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.fails_in, copies.code, copies.leaves = "02_copy", 2, ("mine",)
    before = manifest.code_version()
    with pytest.raises(StageFailed):
        copies.run()
    copies.fails_in = ""
    monkeypatch.setattr(manifest, "code_version", lambda: before | {"commit": "b"})
    copies.run()
    stages = json.loads((copies.home / "r" / "manifest.json").read_text())["stages"]
    assert [[one["commit"] for one in versions_of(stage)] for stage in stages] == [
        [before["commit"]],
        [before["commit"], "b"],
        ["b"],
    ]
    copies.run()
    (line,) = [line for line in copies.said if "version" in line]
    assert line.startswith("01_copy, 02_copy: made by another version of the code")


def test_another_version_of_the_code_is_told(copies: Copies) -> None:
    copies.run()
    assert not any("version" in line for line in copies.said)
    with_entries(copies, {"commit": "abc"}, "version")
    assert copies.run() == []
    (line,) = [line for line in copies.said if "version" in line]
    assert line.startswith("01_copy, 02_copy, 03_copy: made by another version of the code (commit")
