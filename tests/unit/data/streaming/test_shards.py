"""Shards are read from anywhere and from any place on, and a bad one is named."""

import os
import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.data.streams import PAIRS, PARTS, epoch_of, stream, texts, write_shards
from transformer.common.errors import InputError
from transformer.data.streaming import shards
from transformer.data.streaming.shards import ShardPosition, find_shards, shards_fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shards(tmp_path)


@pytest.mark.parametrize("suffixes", [["tsv"], ["tsv.gz"], ["jsonl"], ["parquet"], ["x", "y"]])
def test_a_shard_is_read_from_any_position(folder: Path, suffixes: list[str]) -> None:
    names = [str(folder / f"part-*.{suffix}") for suffix in suffixes]
    shard, *others = find_shards(names, ("x", "y"))
    assert len(others) == 2
    assert list(shard.pairs()) == PARTS[0]
    with shard.opened(ShardPosition()) as whole:
        for index, _ in enumerate(whole.pairs()):
            assert whole.position.row == index + 1
            with shard.opened(whole.position) as rest:
                assert list(rest.pairs()) == PARTS[0][index + 1 :]


@pytest.mark.parametrize("suffixes", [["tsv"], ["tsv.gz"], ["jsonl"], ["parquet"], ["x", "y"]])
def test_pairs_are_skipped_as_they_are_read(folder: Path, suffixes: list[str]) -> None:
    """Also over the last one, whose line has no end, and over the end."""
    (shard,) = find_shards([str(folder / f"part-0.{suffix}") for suffix in suffixes], ("x", "y"))
    for first, skipped in ((0, 1), (3, 8), (7, 0), (29, 1), (12, 18), (25, 100)):
        with shard.opened(ShardPosition()) as read, shard.opened(ShardPosition()) as reader:
            taken = list(islice(reader.pairs(), first))
            assert taken == list(islice(read.pairs(), first))
            passed = list(islice(read.pairs(), skipped))
            assert reader.skip(skipped) == len(passed) == min(skipped, 30 - first)
            assert reader.position == read.position
            assert list(reader.pairs()) == PARTS[0][first + len(passed) :]


def test_aligned_files_of_other_lengths_are_named_where_they_are_skipped(folder: Path) -> None:
    (folder / "longer.y").write_bytes((folder / "part-0.y").read_bytes() + b"\na\nb")
    (shard,) = find_shards([str(folder / "part-0.x"), str(folder / "longer.y")], ("x", "y"))
    with shard.opened(ShardPosition()) as reader, pytest.raises(InputError) as raised:
        reader.skip(10)
        reader.skip(21)
    assert re.search(r"part-0\.x has 30 lines and .*longer\.y has 32 lines", str(raised.value))


def test_a_parquet_shard_is_read_on_behind_whole_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_ROWS", 3)
    rows = [str(number) for number in range(20)]
    pq.write_table(pa.table({"x": rows, "y": rows}), tmp_path / "a.parquet", row_group_size=10)
    (shard,) = find_shards(str(tmp_path / "a.parquet"), ("x", "y"))
    for before in range(21):
        with shard.opened(ShardPosition(before)) as reader:
            pairs = [(pair, reader.position) for pair in reader.pairs()]
        assert pairs == [((row, row), ShardPosition(int(row) + 1)) for row in rows[before:]]


class Ranged(SimpleHTTPRequestHandler):
    """Python's server sends no parts of files, which web servers do."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        data = Path(self.translate_path(self.path))
        if not data.is_file() or "Range" not in self.headers:
            return super().do_GET()
        content = data.read_bytes()
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last or len(content)) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        self.wfile.write(part)


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranged, directory=str(folder)))
    Thread(target=serving.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{serving.server_port}"
    serving.shutdown()
    serving.server_close()


@pytest.mark.parametrize("workers", [0, 1])
def test_shards_come_from_a_web_server(folder: Path, server: str, workers: int) -> None:
    names = [f"{server}/part-{name}" for name in ("0.tsv", "1.tsv.gz", "2.parquet")]
    module = stream(folder, names, workers=workers)
    module.prepare_data()
    numbers = epoch_of(module, 0)
    assert sorted(texts(module, numbers)) == sorted(target for _, target in PAIRS)
    local = [str(folder / name.rpartition("/")[2]) for name in names]
    assert texts(stream(folder, local), numbers) == texts(module, numbers)
    signed = [f"{name}?signature=a.b%2Fc" for name in names]
    assert texts(stream(folder, signed), numbers) == texts(module, numbers)
    module.teardown("fit")
    with pytest.raises(InputError, match=rf"{server}/gone\.tsv \(no such file\)"):
        stream(folder, [f"{server}/gone.tsv"]).prepare_data()


def test_shards_come_from_any_file_system(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for number in range(3):
        memory.pipe_file(f"/s/{number}.tsv", (folder / f"part-{number}.tsv").read_bytes())
    module = stream(folder, "memory://s/*.tsv")
    assert module._stream is not None
    assert [shard.urls for shard in module._stream.shards] == [
        (f"memory:///s/{n}.tsv",) for n in range(3)
    ]
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
        (["gone.tsv"], r"gone\.tsv \(no such file\): a stream reads"),
        (["gone-*.tsv"], r"gone-\*\.tsv \(no such file\)"),
        (["part-0.x"], r"part-0\.x \(1\): .*plain text of two names"),
        (["part-*.x", "part-0.y"], r"part-\*\.x \(3\), .*part-0\.y \(1\): .*plain text"),
        (["cut.tsv.gz"], r"cut\.tsv\.gz:\d+: damaged gzip file"),
        (["cut.parquet"], r"cut\.parquet: cannot be read \("),
        (["other.parquet"], r"other\.parquet: the key 'y' has nothing \(keys: x\).*data\.target"),
        (["none.parquet"], r"none\.parquet:2: the key 'y' has None"),
        (["tabs.tsv"], r"tabs\.tsv:2: 0 tabs"),
        (["part-0.x", "longer.y"], r"has 30 lines and .*longer\.y has 31"),
        (["ftpx://a/b.tsv"], r"ftpx://a/b\.tsv: cannot be read"),
    ],
)
def test_a_bad_shard_is_named_in_one_line(folder: Path, train: list[str], problem: str) -> None:
    whole = (folder / "part-2.tsv.gz").read_bytes()
    (folder / "cut.tsv.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "cut.parquet").write_bytes((folder / "part-2.parquet").read_bytes()[:-9])
    pq.write_table(pa.table({"x": ["a"]}), folder / "other.parquet")
    pq.write_table(pa.table({"x": ["a", "b"], "y": ["a", None]}), folder / "none.parquet")
    (folder / "tabs.tsv").write_text("a\tb\nc\n")
    (folder / "longer.y").write_bytes((folder / "part-0.y").read_bytes() + b"\na")
    names = [name if "://" in name else str(folder / name) for name in train]
    with pytest.raises(InputError, match=problem) as raised:
        stream(folder, names).prepare_data()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_shard_that_breaks_later_is_named_too(folder: Path, workers: int) -> None:
    module = stream(folder, workers=workers)
    module.prepare_data()
    (folder / "part-2.tsv").write_text("a\n")
    with pytest.raises(InputError, match=r"part-2\.tsv:1: 0 tabs"):
        epoch_of(module, 0)
    module.teardown("fit")
