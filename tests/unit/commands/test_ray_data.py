"""The folder of blocks: each is whole or missing, and has the settings that stand beside it."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import fsspec
import pytest

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


def test_what_killed_actors_left_is_removed_and_no_other_file(folder: BlockFolder) -> None:
    left = f"x/a.1.jsonl.000013.jsonl.{'0a' * 16}.part"
    others = {"film.part", "x/a.jsonl.0a.part", f"a.{'0a' * 16}.part"}
    with pytest.raises(InputError, match="wrong"), folder.opened("translate", {}, TEXTS):
        for name in (left, *others):
            folder.write(name, b"")
        assert folder.done() == {}
        raise InputError("a wrong line")
    assert names(folder) == {"_settings.json", *others}


def test_other_settings_or_another_text_are_refused(folder: BlockFolder) -> None:
    with folder.opened("translate", {"seed": 0}, TEXTS):
        pass
    # Without a block, nothing is there that the settings could not hold for.
    with folder.opened("translate", {"seed": 1, "to": None}, TEXTS):
        folder.write("a.txt.000000.jsonl", b"one\n")
    changed = [(FILE._replace(state="7 bytes"),)]
    for command, settings, texts, message in (
        ("translate", {"seed": 2, "to": "de"}, TEXTS, "made with another seed, to "),
        ("score", {"seed": 1, "to": None}, TEXTS, "made with another command "),
        ("translate", {"seed": 1, "to": None}, changed, r"a\.txt has changed since"),
    ):
        with pytest.raises(InputError, match=message), folder.opened(command, settings, texts):
            pass
    # Further files may come, those before them may go, and a file without blocks may change.
    more = UrlFile("memory://bucket/b.txt", "b.txt", "1 byte")
    for file in (more._replace(state="2 bytes"), more):
        with folder.opened("translate", {"seed": 1, "to": None}, [(file,)]):
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


def wanting(tmp_path: Path) -> TranslateConfig:
    (tmp_path / "text").write_text("a dog\n")
    run = str(tmp_path / "no-run")
    return TranslateConfig(
        run, input=tmp_path / "text", output=tmp_path / "out", launch="ray", join=True
    )


def test_a_shortlist_is_found_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)

    def load(config: TranslateConfig, **_: object) -> None:
        search = config.decoding
        kept = asdict(search) if isinstance(search, SearchConfig) else search
        raise InputError(f"{kept['shortlist']} {kept['beam_size']}")

    monkeypatch.setattr(ray_data, "load_line_translator", load)
    absolute = str(tmp_path / "own.npz")
    for decoding, shortlist in (
        (SearchConfig(shortlist="own.npz", beam_size=3), absolute),
        ({"shortlist": "own.npz", "beam_size": 3}, absolute),
        ({"shortlist": "auto", "beam_size": 3}, "auto"),
    ):
        with pytest.raises(InputError, match=rf"^{re.escape(shortlist)} 3$"):
            translate_files(replace(wanting(tmp_path), decoding=decoding))


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=r"out is a folder; join=true writes a file"):
        translate_files(wanting(tmp_path))
    for name in ("a.txt", "a.parquet"):
        (tmp_path / name).touch()
    config = ScoreConfig("no-run", source=tmp_path / "a.txt", output=tmp_path / "out", launch="ray")
    with pytest.raises(InputError, match=r"a\.txt is read as plain text; give its translations"):
        score_files(config)
    with pytest.raises(InputError, match=r"a\.parquet is not plain text"):
        score_files(replace(config, target=tmp_path / "a.parquet"))


def test_a_cluster_without_a_gpu_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0})
    config = replace(wanting(tmp_path), checkpoint=str(write_run(tmp_path)), device="cuda")
    with pytest.raises(InputError, match="the cluster has no GPU for device=cuda; set device=cpu"):
        translate_files(config)
