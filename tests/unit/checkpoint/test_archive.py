"""A file that is read whole or refused in one line, whatever has become of it."""

import os
import resource
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.runs.outcomes import differences
from transformer.checkpoint.archive import read_archive, write_archive
from transformer.common.errors import InputError

VALUES = {
    "weights": {"a": torch.arange(6_000.0), "b": torch.zeros(3, 5)},
    "words": ["ä", "b"] * 50,
    "number": 7,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "last.ckpt"
    write_archive(VALUES, path)
    return path


def refused(path: Path) -> bool:
    """Whether it is refused in one line; else it must say what was written."""
    try:
        values = read_archive(path)
    except InputError as error:
        message = str(error)
        assert message.startswith(f"{path} cannot be read as a checkpoint: it is damaged, or holds")
        assert "\n" not in message
        return True
    assert not differences(VALUES, values)
    return False


def test_a_flipped_bit_anywhere_is_noticed_or_does_no_harm(file: Path) -> None:
    whole = file.read_bytes()
    indices = range(0, len(whole), 97)
    noticed = 0
    for position in indices:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        noticed += refused(file)
    # Among those that do no harm are the bytes that align tensors.
    assert noticed > 0.95 * len(indices)


def bytes_read() -> int:
    """What this process, and those that it has waited for, got from ``read`` so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    [line] = [line for line in lines if "rchar" in line]
    return int(line.split()[1])


def test_the_bytes_are_read_once(tmp_path: Path) -> None:
    file = tmp_path / "x.ckpt"
    write_archive({"a": torch.rand(2**20), "b": [torch.rand(7) for _ in range(100)]}, file)
    parts = []
    for tensors in (True, False):
        before = bytes_read()
        values = read_archive(file, tensors=tensors)
        parts.append((bytes_read() - before) / file.stat().st_size)
        # The weights are the mapped file, which is not read again.
        assert (str(file) in Path("/proc/self/maps").read_text()) == tensors
        assert values["a"].is_meta != tensors and values["a"].shape == (2**20,)
    assert 1 < parts[0] < 1.05 and parts[1] < 0.05


def test_a_changed_weight_leaves_the_file_as_it_is(file: Path) -> None:
    read_archive(file)["weights"]["a"] += 1
    assert not differences(VALUES, read_archive(file))


def test_what_is_verified_is_what_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = zipfile.ZipFile.testzip

    def replaced(archive: zipfile.ZipFile) -> str | None:
        write_archive({"number": 8}, file)
        return verify(archive)

    monkeypatch.setattr(zipfile.ZipFile, "testzip", replaced)
    assert not differences(VALUES, read_archive(file))


@pytest.mark.parametrize("tensors", [1, 2])
def test_a_tensor_larger_than_its_record_is_refused(tmp_path: Path, tensors: int) -> None:
    path = tmp_path / "x.ckpt"
    torch.save([torch.zeros(1000) for _ in range(tensors)], path)
    with zipfile.ZipFile(path) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            # 1,000 and 1,010 as a pickle has them.
            archive.writestr(name, content.replace(b"M\xe8\x03", b"M\xf2\x03"))
    with pytest.raises(InputError, match="tensors overlap"):
        read_archive(path)


def test_at_every_moment_a_whole_file_is_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.with_name("previous.ckpt")
    moments = []

    def look(function: Any) -> Any:
        def looking(*arguments: Any) -> Any:
            whole = [path for path in (file, before) if path.exists()]
            moments.append([read_archive(path)["number"] for path in whole])
            return function(*arguments)

        return looking

    for number in (8, 9):
        for name in ("fsync", "replace"):
            monkeypatch.setattr(os, name, look(getattr(os, name)))
        write_archive({"number": number}, file, before)
        monkeypatch.undo()
    # Seen before the renamings and before fsync: of the file (twice) and of the folder.
    assert moments == [[7], [7], [7], [7], [8, 7], [8, 7], [8, 7], [8], [8], [9, 8]]
    assert sorted(path.name for path in file.parent.iterdir()) == ["last.ckpt", "previous.ckpt"]


def test_who_may_read_it_is_the_umasks_to_say(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        write_archive({}, tmp_path / "x.ckpt")
    finally:
        os.umask(before)
    assert (tmp_path / "x.ckpt").stat().st_mode & 0o777 == 0o664


def test_a_full_disk_leaves_the_old_file(file: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file of this process may grow beyond 4,096 bytes.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(InputError, match=r"last\.ckpt: cannot be written \(File too larg"):
            write_archive(VALUES, file, file.with_name("previous.ckpt"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in file.parent.iterdir()] == ["last.ckpt"]
    assert not refused(file)
