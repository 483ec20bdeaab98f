"""The folder of blocks: each is whole or missing, and has the settings that stand beside it."""

import json
from pathlib import Path

import fsspec
import pytest

from tests.helpers.runs.tuning_runs import write_run
from transformer.commands.ray_data import BlockFolder, translate_files
from transformer.common.errors import InputError
from transformer.data.text.url_files import UrlFile
from transformer.settings.translate import TranslateConfig

FILES = [UrlFile("memory://bucket/a.txt", "a.txt", 6)]


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> BlockFolder:
    if request.param == "disk":
        return BlockFolder.of(str(tmp_path / "out"))
    memory = fsspec.filesystem("memory")
    if memory.exists("/blocks"):
        memory.rm("/blocks", recursive=True)
    return BlockFolder.of("memory://blocks/out/")


def names(folder: BlockFolder) -> set[str]:
    system, path = fsspec.url_to_fs(folder.url)
    return {one.removeprefix(f"{path}/") for one in system.find(path)}


def test_blocks_that_are_there_are_known_by_text_and_number(folder: BlockFolder) -> None:
    with folder.opened("translate", {"seed": 1}, FILES):
        assert folder.done() == {}
        folder.write("x/a.1.jsonl.000012.jsonl", b"one\n")
        folder.write("a.1.txt.000000.parquet", b"two\n")
        folder.write("notes.txt", b"three\n")
        # What a killed actor leaves is no block, and goes at the end.
        folder.write("x/a.1.jsonl.000013.jsonl.0a.part", b"")
        assert {name: [*blocks] for name, blocks in folder.done().items()} == {
            "x/a.1.jsonl": [12],
            "a.1.txt": [0],
        }
    assert names(folder) == {
        *("_settings.json", "x/a.1.jsonl.000012.jsonl", "a.1.txt.000000.parquet", "notes.txt")
    }


def test_other_settings_or_another_text_are_refused(folder: BlockFolder) -> None:
    with folder.opened("translate", {"seed": 0}, FILES):
        pass
    # Without a block, nothing is there that the settings could not hold for.
    with folder.opened("translate", {"seed": 1, "to": None}, FILES):
        folder.write("a.txt.000000.jsonl", b"one\n")
    with (
        pytest.raises(InputError, match="made with another seed, to "),
        folder.opened("translate", {"seed": 2, "to": "de"}, FILES),
    ):
        pass
    with (
        pytest.raises(InputError, match="made with another command "),
        folder.opened("score", {"seed": 1, "to": None}, FILES),
    ):
        pass
    with (
        pytest.raises(InputError, match=r"a\.txt has changed since"),
        folder.opened("translate", {"seed": 1, "to": None}, [FILES[0]._replace(size=7)]),
    ):
        pass
    # Further files may come, and those before them may go.
    more = [UrlFile("memory://bucket/b.txt", "b.txt", 1)]
    with folder.opened("translate", {"seed": 1, "to": None}, more):
        pass
    system, path = fsspec.url_to_fs(folder.url)
    assert json.loads(system.cat_file(f"{path}/_settings.json"))["files"] == {
        "memory://bucket/a.txt": 6,
        "memory://bucket/b.txt": 1,
    }


def test_blocks_are_joined_in_the_order_of_texts_and_numbers(
    folder: BlockFolder, tmp_path: Path
) -> None:
    output = f"{folder.url}.joined"
    for number in (10, 2):
        folder.write(f"b.{number:06}.lines", f"b {number}\n".encode())
    folder.write("a.000000.lines", b"a\n")
    folder.join(["b", "empty", "a"], output)
    system, path = fsspec.url_to_fs(output)
    assert system.cat_file(path) == b"b 2\nb 10\na\n"
    assert not system.exists(fsspec.url_to_fs(folder.url)[1])


@pytest.mark.thorough
@pytest.mark.parametrize("address", ["auto", "nonsense"])
def test_a_wrong_address_of_the_cluster_is_one_line(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # no cluster of this machine is found
    (tmp_path / "text").write_text("a dog\n")
    config = TranslateConfig(
        str(write_run(tmp_path)), input=tmp_path / "text", output=tmp_path / "out", launch="ray"
    )
    with pytest.raises(InputError, match=rf"^launch=ray: no cluster \(RAY_ADDRESS={address}\): "):
        translate_files(config)
