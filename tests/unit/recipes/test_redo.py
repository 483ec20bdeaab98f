"""Stages that are done again because the user wishes it."""

import hashlib
from pathlib import Path

import pytest

from tests.helpers.copies import Copies
from transformer.common.errors import InputError
from transformer.recipes.chain import StageFailed
from transformer.recipes.manifest import Manifest


def test_it_is_done_again_if_that_is_wished(copies: Copies) -> None:
    copies.run()
    assert copies.run("02_copy") == ["02_copy", "03_copy"]
    assert copies.run("01_copy", value=2) == ["01_copy", "02_copy", "03_copy"]
    with pytest.raises(InputError, match="redo_from=4 is not a stage; choose one of 01_copy, 02"):
        copies.run("4")


def tree(folder: Path) -> dict[str, str]:
    """What every file holds, but for the lock, and which folders there are."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in folder.rglob("*")
        if path.name != ".lock"
    }


@pytest.mark.parametrize("what", ["another stage", "a missing file", "too early"])
def test_a_redo_that_is_refused_deletes_nothing(copies: Copies, what: str) -> None:
    copies.run()
    if what == "a missing file":
        (copies.home / "given").unlink()
    before = tree(copies.home)
    redo = "01_copy" if what == "a missing file" else "03_copy"
    with pytest.raises(InputError):
        copies.run("04_copy" if what == "too early" else redo, value=2)
    assert tree(copies.home) == before


def test_a_redo_that_was_stopped_goes_on_with_the_same_command(copies: Copies) -> None:
    copies.run()
    copies.fails_in, copies.code = "03_copy", 143
    with pytest.raises(StageFailed, match="the same command goes on"):
        copies.run("02_copy")
    assert copies.done == ["02_copy"]
    copies.fails_in = ""
    assert copies.run("02_copy") == ["03_copy"]
    assert "redo_from=02_copy: goes on with what this has begun" in copies.said
    # When all is done it is a new wish.
    assert copies.run("02_copy") == ["02_copy", "03_copy"]


def test_a_redo_with_another_setting_is_a_new_one(copies: Copies) -> None:
    copies.run()
    copies.fails_in, copies.code = "03_copy", 143
    with pytest.raises(StageFailed):
        copies.run("01_copy")
    copies.fails_in = ""
    assert copies.run("01_copy", value=2) == ["01_copy", "02_copy", "03_copy"]


def test_a_redo_that_was_killed_while_it_deleted_is_ended(copies: Copies) -> None:
    copies.run()
    manifest = Manifest(copies.home / "r", "copies")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "sweep", lambda self: None)
        manifest.forget(1, "02_copy")
    assert (copies.home / "r" / "03_copy").exists()
    assert copies.run("02_copy") == ["02_copy", "03_copy"]


def test_a_folder_that_the_recipe_has_not_made_is_not_deleted(copies: Copies) -> None:
    copies.fails_in, copies.code = "02_copy", 143
    with pytest.raises(StageFailed):
        copies.run()
    (copies.home / "r" / "03_copy").mkdir()
    (copies.home / "r" / "03_copy" / "mine").touch()
    with pytest.raises(InputError, match="redo_from=03_copy has not begun yet; leave it out"):
        copies.run("03_copy")
    copies.fails_in = ""
    with pytest.raises(InputError, match="03_copy is there, and"):
        copies.run("01_copy")
    assert (copies.home / "r" / "03_copy" / "mine").exists()
