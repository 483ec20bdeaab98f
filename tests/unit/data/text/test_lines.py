"""A large file is hashed once, and again when anything about it has changed."""

import gzip
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.data.text import lines
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


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_line_that_is_too_long_is_named_and_not_held(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, b"one\n12345\n123456\r\n1234567\n")
    assert list(read_lines(path, 7)) == ["one", "12345", "123456", "1234567"]
    with pytest.raises(InputError, match=r":3: the line is longer than 6 bytes.*data\.max_line"):
        list(read_lines(path, 6))
    written(path, bytes(50 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"1: the line is longer than 1,000,000 bytes"):
            list(read_lines(path))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
