"""What the manifest says, and what it refuses."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.copies import Copies
from transformer.common.errors import InputError
from transformer.recipes.chain import run_chain
from transformer.recipes.comparison import difference
from transformer.recipes.digests import Digests
from transformer.recipes.manifest import Manifest
from transformer.recipes.stage import Stage

UNSAFE = ["", ".", "..", "01_copy/..", "01_copy\\n", "text"]
"""Names of folders that are no stages, and would be deleted."""


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


def test_the_beam_that_was_recorded_with_sampling_is_no_difference(copies: Copies) -> None:
    search = {"algorithm": "sampling", "beam_size": 1, "nbest": 2}
    config = {"decoding": search}
    stage = Stage("01_copy", "copy", (), config, (), (), copies.home / "r", config)
    for changes, found in (({"beam_size": 5}, None), ({"nbest": 1}, "decoding.nbest: 1 before")):
        entry = {"config": {"decoding": search | changes}}
        said = difference(entry, stage, copies.home, Digests())
        assert said == found or (said and found and said.startswith(found))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"recipe": "copies"}', '{"recipe": "copies", "stages": ["x"]}'),
        '{"recipe": "copies", "stages": [{"name": "01_copy"}]}',
        *(f'{{"recipe": "copies", "stages": [], "deleting": ["{name}"]}}' for name in UNSAFE),
    ],
)
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
    assert stages[0]["command"] == "python -m transformer select output=x"
    assert stages[1]["seeds"] == {"seed": 2}
    assert set(stages[0]["version"]) >= {"commit", "python", "torch", "transformer"}


def test_a_key_that_was_not_there_may_be_what_it_means_by_itself(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.run()
    plan = copies.plan
    added = {"new": False, "metrics": {"tokenize": "13a"}}

    def upgraded(value: int = 1) -> list[Stage]:
        return [
            replace(stage, config={**stage.config, **added, "value": value}, default={"new": False})
            for stage in plan()
        ]

    monkeypatch.setattr(copies, "plan", upgraded)
    assert copies.run() == []
    added["new"] = True
    with pytest.raises(InputError, match="new: not there before, True now"):
        copies.run()


def test_of_devices_and_accumulation_the_batches_of_an_update_count(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, trainer = copies.plan, {"devices": 4, "num_nodes": 1, "accumulate_grad_batches": 2}

    def trained() -> list[Stage]:
        return [
            replace(stage, config={**stage.config, "trainer": dict(trainer)}) for stage in plan()
        ]

    monkeypatch.setattr(copies, "plan", trained)
    copies.run()
    trainer |= {"devices": 2, "num_nodes": 4, "accumulate_grad_batches": 1}
    assert copies.run() == []
    for devices, update in ((1, "4"), (-1, "-1 x 4 x 1")):
        trainer["devices"] = devices
        with pytest.raises(InputError, match=f"accumulate_grad_batches: 8 before, {update} now; "):
            copies.run()


def test_a_folder_that_was_moved_or_is_named_otherwise_is_the_same(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.run()
    plan = copies.plan()
    config = {"value": 1, "device": "cpu", "input": "r/01_copy/out"}
    monkeypatch.chdir(copies.home)
    relative = [
        replace(
            stage,
            inputs=tuple(path.relative_to(copies.home) for path in stage.inputs),
            outputs=tuple(path.relative_to(copies.home) for path in stage.outputs),
            folder=stage.folder.relative_to(copies.home),
        )
        for stage in plan
    ]
    assert Manifest(Path("r"), "copies").check(relative) == 3
    shutil.rmtree(copies.home / "r")
    (copies.home / "r").mkdir()
    with_input = [*plan[:1], replace(plan[1], config=config), *plan[2:]]
    run_chain(with_input, lambda: Manifest(Path("r"), "copies"), lambda _: None, copies)
    (copies.home / "r").rename(copies.home / "s")
    moved = [
        replace(
            stage,
            config={**stage.config, "input": "s/01_copy/out"} if number == 1 else stage.config,
            inputs=tuple(Path(str(p).replace("/r/", "/s/")) for p in stage.inputs),
            outputs=tuple(Path(str(p).replace("/r/", "/s/")) for p in stage.outputs),
            folder=Path("s") / stage.name,
        )
        for number, stage in enumerate(with_input)
    ]
    assert Manifest(Path("s"), "copies").check(moved) == 3
