"""Shards are read from anywhere and from any place on, and a bad one is named."""

import os
from itertools import islice
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.data.streams import PAIRS, PARTS, epoch_of, stream, texts, write_shards
from transformer.common.errors import InputError
from transformer.data.streaming.shards import ShardPosition, find_shards, shards_fingerprint
from transformer.data.text import parquet

KINDS = pytest.mark.parametrize("suffixes", [["tsv.gz"], ["jsonl"], ["parquet"], ["x", "y"]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shards(tmp_path)


@KINDS
def test_a_shard_is_read_from_any_position(folder: Path, suffixes: list[str]) -> None:
    names = [str(folder / f"part-*.{suffix}") for suffix in suffixes]
    shard, *others = find_shards(names, ("x", "y"))
    assert len(others) == 2
    with shard.opened(ShardPosition()) as whole:
        for index, pair in enumerate(whole.pairs()):
            assert pair == PARTS[0][index]
            assert whole.position.row == index + 1
            with shard.opened(whole.position) as rest:
                assert list(rest.pairs()) == PARTS[0][index + 1 :]
    # Pairs are also skipped over the last one, whose line has no end, and over the end.
    for first, skipped in ((3, 8), (29, 1), (25, 100)):
        with shard.opened(ShardPosition()) as reader:
            assert list(islice(reader.pairs(), first)) == PARTS[0][:first]
            assert reader.skip(skipped) == min(skipped, 30 - first)
            assert reader.position.row == min(first + skipped, 30)
            assert list(reader.pairs()) == PARTS[0][first + skipped :]


def test_a_parquet_shard_is_read_on_behind_whole_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 3)
    rows = [str(number) for number in range(20)]
    pq.write_table(pa.table({"x": rows, "y": rows}), tmp_path / "a.parquet", row_group_size=10)
    (shard,) = find_shards(str(tmp_path / "a.parquet"), ("x", "y"))
    for before in range(21):
        with shard.opened(ShardPosition(before)) as reader:
            pairs = [(pair, reader.position) for pair in reader.pairs()]
        assert pairs == [((row, row), ShardPosition(int(row) + 1)) for row in rows[before:]]


def test_shards_come_from_any_file_system(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for number in range(3):
        memory.pipe_file(f"/s/{number}.tsv", (folder / f"part-{number}.tsv").read_bytes())
    module = stream(folder, "memory://s/*.tsv")
    assert sorted(texts(module, epoch_of(module, 0))) == sorted(target for _, target in PAIRS)


def test_a_local_file_is_known_by_its_size_and_time(folder: Path) -> None:
    path = folder / "part-0.tsv"
    (shard,) = find_shards([str(path)], ("x", "y"))
    before, status = shards_fingerprint([shard]), path.stat()
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o600)
    os.utime(copy, ns=(0, status.st_mtime_ns))
    copy.replace(path)
    assert path.stat().st_ino != status.st_ino
    assert shards_fingerprint([shard]) == before
    os.utime(path, ns=(0, status.st_mtime_ns + 1))
    assert shards_fingerprint([shard]) != before


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        (["gone-*.tsv"], r"gone-\*\.tsv \(no such file\)"),
        (["part-*.x", "part-0.y"], r"part-\*\.x \(3\), .*part-0\.y \(1\): .*plain text"),
        (["cut.tsv.gz"], r"cut\.tsv\.gz:\d+: damaged gzip file"),
        (["cut.parquet"], r"cut\.parquet: cannot be read \("),
        (["none.parquet"], r"none\.parquet:2: the column 'y' has None"),
    ],
)
def test_a_bad_shard_is_named_in_one_line(folder: Path, train: list[str], problem: str) -> None:
    whole = (folder / "part-2.tsv.gz").read_bytes()
    (folder / "cut.tsv.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "cut.parquet").write_bytes((folder / "part-2.parquet").read_bytes()[:-9])
    pq.write_table(pa.table({"x": ["a", "b"], "y": ["a", None]}), folder / "none.parquet")
    names = [str(folder / name) for name in train]
    with pytest.raises(InputError, match=problem) as raised:
        stream(folder, names).prepare_data()
    assert "\n" not in str(raised.value)


def test_a_shard_that_breaks_later_is_named_too(folder: Path) -> None:
    module = stream(folder, workers=1)
    module.prepare_data()
    (folder / "part-2.tsv").write_text("a\n")
    with pytest.raises(InputError, match=r"part-2\.tsv:1: 0 tabs"):
        epoch_of(module, 0)
    module.teardown("fit")
