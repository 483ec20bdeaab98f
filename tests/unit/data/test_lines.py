"""A large file is hashed once, and again when anything about it has changed."""

import os
import time
from pathlib import Path

import pytest

from transformer.data import lines
from transformer.data.corpus import Corpus
from transformer.data.lines import file_digest
from transformer.errors import InputError


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
    monkeypatch.setattr("transformer.data.corpus.tsv_pairs", None)
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


def test_a_file_just_changed_is_not_believed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_SETTLED_SECONDS", 5.0)
    file_digest(file, file.parent / "cache")
    assert not (file.parent / "cache").exists()


def test_a_damaged_digest_is_not_believed(file: Path) -> None:
    first = file_digest(file, file.parent / "cache")
    (answer,) = (file.parent / "cache" / "answers").iterdir()
    answer.write_text("")
    assert file_digest(file, file.parent / "cache") == first
    assert len(answer.read_text()) == 64
    for damaged in (first.hex()[:32], "\0" * 64):
        answer.write_text(damaged)
        with pytest.raises(InputError, match=r"cache/answers: damaged; delete it"):
            file_digest(file, file.parent / "cache")


def test_a_small_file_leaves_no_trace(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_LARGE", 1000)
    file_digest(file, file.parent / "cache")
    assert Corpus.of(file, "x", "y").count(file.parent / "cache") == 5
    assert not (file.parent / "cache").exists()
