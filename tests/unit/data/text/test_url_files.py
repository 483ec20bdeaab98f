"""Files of any place are found by their names, and read line by line or by a key."""

import gzip
import json
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
    assert url_format("http://x/a.tsv.gz?signature=a.b") == "tsv"
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


def test_a_wrong_text_is_named(tmp_path: Path) -> None:
    for name, content, message in (
        ("a.jsonl", b'{"en": ["x", "y"]}\n', "several texts"),
        ("a.txt", b"x\n\xff\n", r"a\.txt:2: byte 1 .* not UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            list(read_sources(str(tmp_path / name), "en"))


def test_a_column_without_a_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"de": ["x", None]}), path)
    with pytest.raises(InputError, match=r"the column 'en' has nothing \(columns: de\)"):
        list(read_sources(str(path), "en"))
    with pytest.raises(InputError, match=r"a\.parquet:2: the column 'de' has None"):
        list(read_sources(str(path), "de"))
