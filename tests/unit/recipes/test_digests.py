"""Digests of files: right, remembered, and told of where they take long."""

import hashlib
import threading
from pathlib import Path

import pytest

from transformer.data.text import lines
from transformer.recipes import digests
from transformer.recipes.digests import Digests


def test_a_file_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "file", list[Path]()

    def counted(path: Path, cache: Path | None = None) -> bytes:
        read.append(path)
        return lines.file_digest(path, cache)

    monkeypatch.setattr(digests, "file_digest", counted)
    file.write_text("one")
    found = Digests()
    assert found.of(file) == found.of(file) == hashlib.sha256(b"one").hexdigest()
    file.write_text("three")
    assert found.of(file) == hashlib.sha256(b"three").hexdigest()
    assert read == [file, file]


def test_a_large_file_is_remembered_between_calls_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, said, told = tmp_path / "file", list[str](), threading.Event()
    file.write_text("text")
    monkeypatch.setattr(lines, "_LARGE", 4)
    monkeypatch.setattr(lines, "_SETTLED_SECONDS", -1e9)
    monkeypatch.setattr(digests, "_PATIENCE", 0.0)

    def say(line: str) -> None:
        said.append(line)
        told.set()

    hashed = lines.file_digest

    def slow(path: Path, cache: Path | None = None) -> bytes:
        assert told.wait(10)
        return hashed(path, cache)

    monkeypatch.setattr(digests, "file_digest", slow)
    first = Digests(tmp_path / "cache", say).of(file)
    assert said == [f"reading {file} (0.0 GB), to see whether it is what it was"]
    (answer,) = (tmp_path / "cache" / "answers").iterdir()
    assert answer.read_text() == first
    answer.write_text("0" * 64)
    assert Digests(tmp_path / "cache", say).of(file) == "0" * 64
