"""The folder of blocks: each is whole or missing, and has the settings that stand beside it."""

import errno
import json
import os
import re
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import ANY

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.helpers.runs.tuning_runs import write_run
from transformer.commands import ray_data
from transformer.commands.ray_data import BlockFolder, score_files, translate_files
from transformer.common.errors import InputError
from transformer.data.text.url_files import UrlFile
from transformer.settings.decoding import SearchConfig
from transformer.settings.evaluation import ScoreConfig
from transformer.settings.translator import TranslateConfig

FILE = UrlFile("memory://bucket/a.txt", "a.txt", "6 bytes")
TEXTS = [(FILE,)]


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
    with folder.opened("translate", {"seed": 1}, TEXTS):
        assert folder.done() == {}
        folder.write("x/a.1.jsonl.000012.jsonl", b"one\n")
        folder.write("a.1.txt.000000.parquet", b"two\n")
        folder.write("notes.txt", b"three\n")
        assert {name: [*blocks] for name, blocks in folder.done().items()} == {
            "x/a.1.jsonl": [12],
            "a.1.txt": [0],
        }
    assert names(folder) == {
        *("_settings.json", "x/a.1.jsonl.000012.jsonl", "a.1.txt.000000.parquet", "notes.txt")
    }


@pytest.mark.parametrize("fails", [False, True])
def test_what_killed_actors_left_is_removed_and_no_other_file(
    folder: BlockFolder, fails: bool
) -> None:
    left = f"x/a.1.jsonl.000013.jsonl.{'0a' * 16}.part"
    others = {"film.part", "x/a.jsonl.0a.part", f"a.{'0a' * 16}.part"}
    with (
        pytest.raises(InputError, match="a wrong line") if fails else nullcontext(),
        folder.opened("translate", {}, TEXTS),
    ):
        for name in (left, *others):
            folder.write(name, b"")
        assert folder.done() == {}
        if fails:
            raise InputError("a wrong line")
    assert names(folder) == {"_settings.json", *others}


def test_other_settings_or_another_text_are_refused(folder: BlockFolder) -> None:
    with folder.opened("translate", {"seed": 0}, TEXTS):
        pass
    # Without a block, nothing is there that the settings could not hold for.
    with folder.opened("translate", {"seed": 1, "to": None}, TEXTS):
        folder.write("a.txt.000000.jsonl", b"one\n")
    with (
        pytest.raises(InputError, match="made with another seed, to "),
        folder.opened("translate", {"seed": 2, "to": "de"}, TEXTS),
    ):
        pass
    with (
        pytest.raises(InputError, match="made with another command "),
        folder.opened("score", {"seed": 1, "to": None}, TEXTS),
    ):
        pass
    with (
        pytest.raises(InputError, match=r"a\.txt has changed since"),
        folder.opened("translate", {"seed": 1, "to": None}, [(FILE._replace(state="7 bytes"),)]),
    ):
        pass
    # Further files may come, and those before them may go.
    more = UrlFile("memory://bucket/b.txt", "b.txt", "1 byte")
    with folder.opened("translate", {"seed": 1, "to": None}, [(more,)]):
        pass
    system, path = fsspec.url_to_fs(folder.url)
    assert json.loads(system.cat_file(f"{path}/_settings.json"))["texts"] == {
        "a.txt": [["memory://bucket/a.txt", "6 bytes"]],
        "b.txt": [["memory://bucket/b.txt", "1 byte"]],
    }


def test_a_name_is_of_one_text(folder: BlockFolder) -> None:
    other = FILE._replace(url="memory://another/a.txt")
    target = UrlFile("memory://bucket/a.de", "a.de", "6 bytes")
    with folder.opened("score", {}, [(FILE, target)]):
        folder.write("a.txt.000000.jsonl", b"one\n")
    # Another folder, another target, none, and the sides the other way round.
    for text in [(other, target), (FILE, other), (FILE,), (target._replace(name="a.txt"), FILE)]:
        with (
            pytest.raises(InputError, match=r"of \S+bucket/a\.txt and \S+a\.de under the name a"),
            folder.opened("score", {}, [text]),
        ):
            pass
    with folder.opened("score", {}, [(FILE, target)]):
        pass


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


def test_a_text_without_blocks_may_change(folder: BlockFolder) -> None:
    wrong = UrlFile("memory://bucket/b.txt", "b.txt", "1 byte")
    with folder.opened("translate", {}, [(FILE,), (wrong,)]):
        folder.write("a.txt.000000.jsonl", b"one\n")
    corrected = wrong._replace(state="2 bytes")
    with folder.opened("translate", {}, [(FILE,), (corrected,)]):
        folder.write("b.txt.000000.jsonl", b"one\n")
    with (
        pytest.raises(InputError, match=r"b\.txt has changed since its blocks"),
        folder.opened("translate", {}, [(FILE,), (wrong,)]),
    ):
        pass


def test_a_file_that_cannot_be_joined_is_one_line(
    folder: BlockFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, path = fsspec.url_to_fs(f"{folder.url}.joined")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    folder.write("a.000000.lines", b"a\n")
    monkeypatch.setattr(MemoryFileSystem, "mv", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InputError, match=r"joined: cannot be written \(.*the disk is gone"):
        folder.join(["a"], f"{folder.url}.joined")
    assert folder.done() == {"a": {0: ANY}}
    assert not system.glob(f"{path}*")


def wanting(tmp_path: Path) -> TranslateConfig:
    (tmp_path / "text").write_text("a dog\n")
    run = str(tmp_path / "no-run")
    return TranslateConfig(
        run, input=tmp_path / "text", output=tmp_path / "out", launch="ray", join=True
    )


def test_a_folder_is_no_joined_file(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=r"out is a folder; join=true writes a file"):
        translate_files(wanting(tmp_path))


@pytest.mark.parametrize("whole", [False, True])
def test_a_shortlist_is_found_from_another_folder(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)

    def load(config: TranslateConfig, **_: object) -> None:
        search = config.decoding
        kept = asdict(search) if isinstance(search, SearchConfig) else search
        raise InputError(f"{kept['shortlist']} {kept['beam_size']}")

    monkeypatch.setattr(ray_data, "load_line_translator", load)
    for name, found in [("own.npz", str(tmp_path / "own.npz")), ("auto", "auto")]:
        keys = {"shortlist": name, "beam_size": 3, "algorithm": "beam"}
        decoding = SearchConfig(**keys) if whole else keys
        with pytest.raises(InputError, match=rf"^{re.escape(found)} 3$"):
            translate_files(replace(wanting(tmp_path), decoding=decoding))


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("a.jsonl", "b.jsonl", r"a\.jsonl is not plain text: target= is for two plain files"),
        ("a.txt", "b.tsv", r"b\.tsv is not plain text"),
        ("a.parquet", "b.txt", r"a\.parquet is not plain text"),
        ("a.txt", None, r"a\.txt is read as plain text; give its translations as target="),
    ],
)
def test_a_target_is_for_plain_files(
    source: str, target: str | None, told: str, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    for name in filter(None, [source, target]):
        (tmp_path / name).write_text("")
    config = ScoreConfig("no-run", source=tmp_path / source, output=tmp_path / "out", launch="ray")
    config = replace(config, target=target and tmp_path / target)
    with pytest.raises(InputError, match=told):
        score_files(config)


def test_a_cluster_without_a_gpu_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0})
    config = replace(wanting(tmp_path), checkpoint=str(write_run(tmp_path)), device="cuda")
    with pytest.raises(InputError, match="the cluster has no GPU for device=cuda; set device=cpu"):
        translate_files(config)


@pytest.mark.thorough
def test_a_wrong_address_of_the_cluster_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    # Not "auto", which finds the cluster of another test on this machine.
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    (tmp_path / "text").write_text("a dog\n")
    config = TranslateConfig(
        str(write_run(tmp_path)), input=tmp_path / "text", output=tmp_path / "out", launch="ray"
    )
    with pytest.raises(InputError, match=r"^launch=ray: no cluster \(RAY_ADDRESS=nonsense\): "):
        translate_files(config)
