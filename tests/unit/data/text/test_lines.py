"""A large file is hashed once, and again when anything about it has changed."""

import gzip
import os
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.data.corpora.split import Split
from transformer.data.streaming.shards import find_shards
from transformer.data.text import lines
from transformer.data.text.conllu import read_conllu
from transformer.data.text.lines import file_digest, read_lines
from transformer.data.text.parallel import Corpus


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lines, "_LARGE", 8)
    monkeypatch.setattr(lines, "_SETTLED_SECONDS", 0.0)
    (tmp_path / "a.tsv").write_text("one\ttwo\n" * 5)
    return tmp_path / "a.tsv"


def test_a_large_file_is_read_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = file.parent / "cache"
    first = file_digest(file, cache)
    assert first == file_digest(file)
    count = Corpus.of(file, "x", "y").count(cache)
    monkeypatch.setattr("hashlib.file_digest", None)
    monkeypatch.setattr("transformer.data.text.parallel.tsv_pairs", None)
    assert file_digest(file, cache) == first
    assert Corpus.of(file, "x", "y").count(cache) == count == 5


def test_a_change_that_keeps_size_and_time_is_seen(file: Path) -> None:
    cache, before = file.parent / "cache", file.stat()
    first = file_digest(file, cache)
    time.sleep(0.02)
    file.write_text("one\tTWO\n" * 5)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert file_digest(file, cache) != first


@pytest.mark.parametrize(("limit", "value"), [("_LARGE", 1000), ("_SETTLED_SECONDS", 5.0)])
def test_a_small_or_new_file_leaves_no_trace(
    file: Path, limit: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, limit, value)
    file_digest(file, file.parent / "cache")
    assert not (file.parent / "cache").exists()


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_line_that_is_too_long_is_named(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, b"one\n12345\n123456\r\n1234567\n")
    assert list(read_lines(path, 7)) == ["one", "12345", "123456", "1234567"]
    with pytest.raises(InputError) as raised:
        list(read_lines(path, 6))
    assert str(raised.value) == (
        f"{path}:3: the line is longer than 6 bytes, too long for one sentence; cut it, or "
        "raise data.max_line"
    )


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_no_more_of_a_long_line_is_held_than_may_be(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / name, bytes(50 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"1: the line is longer than 1,000,000 bytes.*cut it"):
            list(read_lines(path))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "read",
    [
        lambda path: Corpus((path, path), "x", "y", max_line=3),
        lambda path: Split(Corpus((path, path), "x", "y", max_line=3), links=path).word_links(),
        lambda path: read_conllu(path, 3),
        lambda path: find_shards([str(path), str(path)], ("x", "y"), 3)[0].pairs(),
    ],
    ids=["corpus", "links", "conllu", "shards"],
)
def test_every_reader_knows_the_longest_line(
    tmp_path: Path, read: Callable[[Path], Iterable[object]]
) -> None:
    written(tmp_path / "a.txt", b"1234\n")
    with pytest.raises(InputError, match=r":1: the line is longer than 3 bytes.*data\.max_line"):
        list(read(tmp_path / "a.txt"))
