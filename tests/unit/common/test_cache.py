"""What is in the cache is there for good, and who waits for it says so."""

import logging
import os
from pathlib import Path
from threading import Thread

import pytest

from transformer.common.cache import locked
from transformer.common.files import written_whole


def test_a_file_or_folder_is_synced_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def seen(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, named.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    named = tmp_path / "file"
    with written_whole(named) as part:
        part.write_text("whole")
    own = tmp_path.stat().st_ino
    assert synced == [(named.stat().st_ino, False), (own, True)]
    synced.clear()
    named = tmp_path / "folder"
    with written_whole(named) as part:
        (part / "in").mkdir(parents=True)
        (part / "in" / "file").write_text("whole")
    inside = {path.stat().st_ino for path in (named, named / "in", named / "in" / "file")}
    assert {inode for inode, there in synced if not there} == inside
    assert synced[-1] == (own, True)


def test_a_waiting_process_logs_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    entered: list[str] = []

    def wait() -> None:
        with locked(tmp_path):
            entered.append("after")

    with locked(tmp_path):
        assert not caplog.messages
        waiting = Thread(target=wait)
        waiting.start()
        waiting.join(0.3)
        entered.append("before")
    waiting.join(10)
    assert entered == ["before", "after"]
    assert caplog.messages == [f"waiting for another process that is preparing text in {tmp_path}"]
