"""Files of any place are found by their names, and read line by line or by a key."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transformer.common.errors import InputError, MissingFile
from transformer.data.text.url_files import find_files, read_pairs, read_sources, url_format

SOURCES = ["a dog", "", "b\x85c\u2028d\re", " x "]
TARGETS = ["ein hund", "", "b c", "y"]


def write_all(folder: Path) -> None:
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    contents = {
        "a.txt": "".join(f"{text}\n" for text in SOURCES),
        "a.de": "".join(f"{text}\n" for text in TARGETS),
        "c.tsv": "".join(f"{source}\t{target}\n" for source, target in pairs),
        "d.jsonl": "".join(json.dumps({"en": s, "de": t, "n": 1}) + "\n" for s, t in pairs),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content.encode())
        (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    table = pa.table({"n": [1] * len(pairs), "en": SOURCES, "de": TARGETS})
    pq.write_table(table, folder / "e.parquet", row_group_size=3)


def test_all_formats_have_the_same_texts(tmp_path: Path) -> None:
    write_all(tmp_path)
    names = ("a.txt", "a.txt.gz", "c.tsv", "c.tsv.gz", "d.jsonl", "d.jsonl.gz", "e.parquet")
    for name in names:
        url = str(tmp_path / name)
        assert list(read_sources(url, "en")) == SOURCES, name
        urls = [url, str(tmp_path / "a.de.gz")] if url_format(url) == "plain" else [url]
        assert list(read_pairs(urls, ("en", "de"))) == list(zip(SOURCES, TARGETS, strict=True))
    with_features = read_sources(str(tmp_path / "c.tsv"), "en", features=True)
    assert next(with_features) == "a dog\tein hund"
    # Without a key, rows of Parquet are JSON as the lines of JSONL are.
    whole = [[*map(json.loads, read_sources(str(tmp_path / name), None))] for name in names[-2:]]
    assert whole[0] == whole[1]


def test_names_are_those_below_the_folder_of_the_glob(tmp_path: Path) -> None:
    for name in ("b/2.txt", "a/1.txt", "a/[x].txt", "a/1.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    files = find_files(f"{tmp_path}/*/*.txt")
    assert [(file.url, file.name) for file in files] == [
        (f"{tmp_path}/{name}", name) for name in ("a/1.txt", "a/[x].txt", "b/2.txt")
    ]
    [alone] = find_files(f"{tmp_path}/a/[x].txt")
    assert alone.name == "[x].txt"
    with pytest.raises(MissingFile, match="a folder; name its files, such as "):
        find_files(f"{tmp_path}/a")
    with pytest.raises(MissingFile, match=r"none\*: no such file"):
        find_files(f"{tmp_path}/none*")


def test_a_url_stays_one() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/bucket/x/1.txt", b"alpha\n\nbeta")
    [file] = find_files("memory://bucket/*/*.txt")
    assert file.name == "x/1.txt"
    assert file.url.startswith("memory://")
    assert list(read_sources(file.url, "en")) == ["alpha", "", "beta"]
    memory.rm_file("/bucket/x/1.txt")
    with pytest.raises(InputError, match=r"1\.txt: cannot be read"):
        list(read_sources(file.url, "en"))


def test_the_state_of_a_file_changes_with_its_content_alone(tmp_path: Path) -> None:
    path, memory = tmp_path / "1.txt", fsspec.filesystem("memory")

    def write(content: bytes, time: int) -> None:
        path.write_bytes(content)
        os.utime(path, ns=(time, time))
        memory.pipe_file("/state/1.txt", content)

    for name in (str(path), "memory://state/*.txt"):
        write(b"alpha", 1)
        before = find_files(name)
        assert find_files(name) == before
        write(b"gamma", 2)
        assert find_files(name) != before


def test_a_column_without_json_is_named(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b"], "day": pa.array([None, 0], pa.timestamp("ms"))})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(
        InputError, match=r"a\.parquet:2: the column 'day' has no JSON \(.*datetime"
    ):
        list(read_sources(str(tmp_path / "a.parquet"), None))


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.jsonl", lambda file: file.write_text('{"de": "x"}\n'), r"a\.jsonl:1: the key 'en'"),
        ("a.jsonl", lambda file: file.write_text('{"en": ["x", "y"]}\n'), "several texts"),
        ("a.jsonl", lambda file: file.write_text('{"en": "x\\ny"}\n'), "not one line of UTF-8"),
        ("a.txt", lambda file: file.write_bytes(b"x\n\xff\n"), r"a\.txt:2: byte 1 .* not UTF-8"),
        ("a.txt.gz", lambda file: file.write_bytes(b"x\n"), r"a\.txt\.gz:1: damaged gzip file"),
        ("a.parquet", lambda file: file.write_bytes(b"x\n"), r"a\.parquet: cannot be read"),
        (
            "a.parquet",
            lambda file: pq.write_table(pa.table({"de": ["x"]}), file),
            r"the key 'en' has nothing \(keys: de\)",
        ),
        (
            "a.parquet",
            lambda file: pq.write_table(pa.table({"en": ["x", None]}), file),
            r"a\.parquet:2: the key 'en' has None",
        ),
    ],
)
def test_a_wrong_text_is_named(
    name: str, write: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    with pytest.raises(InputError, match=message):
        list(read_sources(str(tmp_path / name), "en"))
