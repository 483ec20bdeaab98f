"""A stream gives every pair once an epoch, from shards of every kind, and goes on anywhere."""

import gzip
import json
import logging
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.unit.data.corpora import SENTENCES, data_config, tokenizer_config
from transformer.data import buffers
from transformer.data.loader import Shares, UpdateLoader
from transformer.data.shards import Place, Shard, find_shards
from transformer.data.stream_module import StreamData
from transformer.data.tokenizer import PAD
from transformer.errors import InputError

PAIRS = [(f"{a} {b}", f"{a} {b}"[::-1]) for a in SENTENCES for b in SENTENCES]
PARTS = (PAIRS[:30], PAIRS[30:31], PAIRS[31:])


def write(path: Path, pairs: list[tuple[str, str]]) -> None:
    """One shard, of the kind its name says."""
    if path.suffix == ".parquet":
        columns = {"x": [source for source, _ in pairs], "y": [target for _, target in pairs]}
        return pq.write_table(pa.table(columns), path, row_group_size=7)
    if ".jsonl" in path.name:
        lines = [json.dumps({"x": source, "y": target}) for source, target in pairs]
    elif ".tsv" in path.name:
        lines = ["\t".join(pair) for pair in pairs]
    else:
        side = path.suffix == ".y"
        lines = [pair[side] for pair in pairs]
    # The last line has no end, which is no reason to lose it.
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for suffix in ("tsv", "tsv.gz", "jsonl", "parquet", "x", "y"):
        for number, part in enumerate(PARTS):
            write(tmp_path / f"part-{number}.{suffix}", part)
    write(tmp_path / "val.tsv", PAIRS[:9])
    return tmp_path


def stream(folder: Path, train: Any = None, sampling: float = 0.0, **changes: Any) -> StreamData:
    given = str(folder / "part-*.tsv") if train is None else train
    changes = {"streaming": True, "buffer": 20, "validation": str(folder / "val.tsv")} | changes
    config = data_config(folder, train=given, **changes)
    return StreamData(config, tokenizer_config(sampling=sampling))


def texts(module: StreamData, numbers: range) -> list[str]:
    batches = (module._training[module.row[number]] for number in numbers)
    return [t for b in batches for t in module.tokenizer.decode_target(b.target_output.tolist())]


def epoch_of(module: StreamData, epoch: int) -> range:
    """The numbers of the batches of an epoch."""
    number, found = 0, []
    while (key := module.row[number]).epoch <= epoch:
        found += [number] if key.epoch == epoch else []
        number += 1
    return range(found[0], found[-1] + 1)


@pytest.mark.parametrize(
    "names",
    [
        ["part-*.tsv"],
        ["part-*.tsv.gz"],
        ["part-0.jsonl", "part-1.tsv", "part-2.parquet"],
        ["part-*.parquet"],
        ["part-*.x", "part-*.y"],
    ],
)
def test_every_pair_comes_once_an_epoch(folder: Path, names: list[str]) -> None:
    module = stream(folder, [str(folder / name) for name in names])
    module.prepare_data()
    for epoch in (0, 1):
        numbers = epoch_of(module, epoch)
        assert sorted(texts(module, numbers)) == sorted(target for _, target in PAIRS)
    assert texts(module, epoch_of(module, 0)) != texts(module, epoch_of(module, 1))
    batches = [module._training[module.row[number]] for number in epoch_of(module, 1)]
    assert all(b.size * max(b.source.shape[1], b.target_output.shape[1]) <= 96 for b in batches)


@pytest.mark.parametrize("suffix", ["tsv", "tsv.gz", "jsonl", "parquet"])
def test_a_shard_is_read_on_from_any_place(folder: Path, suffix: str) -> None:
    (shard,) = find_shards(str(folder / f"part-0.{suffix}"), ("x", "y"))
    whole = list(shard.pairs(Place()))
    assert [pair for pair, _ in whole] == PARTS[0]
    for index, (_, place) in enumerate(whole):
        assert place.row == index + 1
        assert list(shard.pairs(place)) == whole[index + 1 :]


def test_parallel_files_are_read_on_from_any_place(folder: Path) -> None:
    shards = find_shards([str(folder / "part-*.x"), str(folder / "part-*.y")], ("x", "y"))
    assert len(shards) == 3
    whole = list(shards[2].pairs(Place()))
    assert list(shards[2].pairs(whole[10][1])) == whole[11:]


def same(first: Any, second: Any) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in zip(
            (first.source, first.target_output), (second.source, second.target_output), strict=True
        )
    )


def updates(module: StreamData, done: int, **shares: int) -> UpdateLoader[Any]:
    return UpdateLoader(
        module._training,
        module.row,
        shares=Shares(**shares),
        rank=0,
        done=lambda: done,
        workers=module._data.workers,
        pin_memory=False,
    )


@pytest.mark.parametrize("sampling", [0.0, 0.3])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_resumed_stream_is_the_uninterrupted_one(
    folder: Path, sampling: float, workers: int
) -> None:
    module = stream(folder, sampling=sampling)
    module.prepare_data()
    total = 2 * len(epoch_of(module, 0))
    whole = [module._training[module.row[number]] for number in range(total)]
    for done in (1, 5, total // 2 + 3):
        before = stream(folder, sampling=sampling, workers=workers)
        loader = updates(before, 0)
        stopped = iter(loader)
        # What the workers have read ahead of training must not count.
        assert all(same(next(stopped).batches[0], whole[number]) for number in range(done))
        loader._done = lambda done=done: done
        state = loader.state_dict()
        stopped.close()
        before.teardown("fit")
        after = stream(folder, sampling=sampling, workers=workers)
        resumed = updates(after, done)
        resumed.load_state_dict(state)
        for number, update in zip(range(done, total), resumed, strict=False):
            assert update.numbers == [number]
            assert same(update.batches[0], whole[number])
        resumed.close()
        after.teardown("fit")


def test_to_resume_reads_one_buffer_and_none_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = stream(folder)
    last = epoch_of(module, 1)[-1]
    state = module.row.state_dict(last)
    expected = module.row[last].pairs.tolist()
    filled = []
    fill = buffers.BufferReader.fill
    monkeypatch.setattr(
        buffers.BufferReader,
        "fill",
        lambda self, position: (filled.append(position), fill(self, position))[1],
    )
    again = stream(folder)
    again.row.load_state_dict(json.loads(json.dumps(state)))
    assert again.row[last].pairs.tolist() == expected
    assert len(filled) == 1


def test_what_comes_before_the_place_is_found_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = stream(folder)
    keys = [module.row[number].pairs.tolist() for number in range(12)]
    again = stream(folder)
    again.row.load_state_dict(module.row.state_dict(11))
    with caplog.at_level(logging.INFO):
        assert [again.row[number].pairs.tolist() for number in (11, 0, 5, 11)] == [
            keys[number] for number in (11, 0, 5, 11)
        ]
    assert "from its beginning" in caplog.text


def test_the_row_does_not_know_of_ranks(folder: Path) -> None:
    module = stream(folder)
    alone = [module.row[number].pairs.tolist() for number in range(12)]
    for rank in range(3):
        other = stream(folder)
        mine = [other.row[number].pairs.tolist() for number in range(rank, 12, 3)]
        assert mine == alone[rank::3]


def test_other_shards_begin_the_epoch_again_and_other_buffers_do_not(folder: Path) -> None:
    module = stream(folder)
    last = epoch_of(module, 1)[-1]
    state = module.row.state_dict(last)
    other = stream(folder, str(folder / "part-*.jsonl"))
    other.row.load_state_dict(state)
    assert other.row._starts[0][1].shard == 0
    assert other.row[last].epoch == 1
    longer = stream(folder, buffer=30)
    longer.row.load_state_dict(state)
    assert longer.row._starts[0] == module.row._starts[module.row._known(last)]
    assert longer.row.identity() != module.row.identity()


def test_drawn_segmentations_say_the_same_and_differ_by_epoch(folder: Path) -> None:
    module = stream(folder, sampling=0.4, buffer=100)
    first, second = epoch_of(module, 0), epoch_of(module, 1)
    assert sorted(texts(module, first)) == sorted(texts(module, second))
    drawn: list[dict[int, list[int]]] = []
    for numbers in (first, second):
        keys = [module.row[number] for number in numbers]
        batches = [module._training[key] for key in keys]
        drawn.append(
            {
                pair: [piece for piece in row if piece != PAD]
                for key, batch in zip(keys, batches, strict=True)
                for pair, row in zip(key.pairs.tolist(), batch.source.tolist(), strict=True)
            }
        )
    assert drawn[0].keys() == drawn[1].keys()
    assert sum(drawn[0][pair] != drawn[1][pair] for pair in drawn[0]) > 20


def test_duplicates_are_left_out_within_a_buffer(folder: Path) -> None:
    write(folder / "part-3.tsv", PAIRS[:10] * 2)
    write(folder / "part-4.tsv", [("a " * 60, "b"), ("", "c"), *PAIRS[:2]])
    train = [str(folder / "part-3.tsv"), str(folder / "part-4.tsv")]
    module = stream(folder, train, buffer=1000)
    assert len(texts(module, epoch_of(module, 0))) == 10
    module = stream(folder, train, buffer=1000, deduplicate=False)
    assert len(texts(module, epoch_of(module, 0))) == 22


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
    module.teardown("fit")
    with pytest.raises(InputError, match=rf"{server}/gone\.tsv: no such file"):
        stream(folder, [f"{server}/gone.tsv"]).prepare_data()


def test_shards_come_from_any_file_system(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for number in range(3):
        memory.pipe_file(f"/s/{number}.tsv", (folder / f"part-{number}.tsv").read_bytes())
    module = stream(folder, "memory://s/*.tsv")
    assert [shard.urls for shard in module._shards] == [(f"memory:///s/{n}.tsv",) for n in range(3)]
    assert sorted(texts(module, epoch_of(module, 0))) == sorted(target for _, target in PAIRS)


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        (["gone.tsv"], r"gone\.tsv: no such file"),
        (["gone-*.tsv"], r"gone-\*\.tsv: no file is named so"),
        (["part-0.x"], r"part-0\.x \(1\): plain text streams from two names"),
        (["part-*.x", "part-0.y"], r"part-\*\.x \(3\), .*part-0\.y \(1\): plain text"),
        (["cut.tsv.gz"], r"cut\.tsv\.gz: damaged gzip file after line"),
        (["cut.parquet"], r"cut\.parquet: damaged Parquet file"),
        (["other.parquet"], r"other\.parquet: no column 'y' \(columns: 'x'\); set data\.target"),
        (["none.parquet"], r"none\.parquet:2: 'y' is not a string"),
        (["tabs.tsv"], r"tabs\.tsv:2: 0 tabs"),
        (["latin.tsv"], r"latin\.tsv:1: byte 1 of the line is not UTF-8"),
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
    (folder / "latin.tsv").write_bytes(b"\xff\ta\n")
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


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"corpus": "pocket"}, "reads files, not data.corpus=pocket"),
        ({"alignment": "links"}, "a stream has no word alignment"),
        ({"buffer": 0}, "data.buffer=0"),
        ({"validation": None}, "training needs a validation text"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(
    folder: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        stream(folder, **changes).prepare_data()


def test_links_and_other_tasks_are_refused(folder: Path) -> None:
    from transformer.data.monolingual import MonolingualData
    from transformer.data.tagged import TaggingData

    config = stream(folder)._data
    with pytest.raises(InputError, match=r"loss\.alignment_weight=0"):
        StreamData(config, tokenizer_config(), links=True)
    for kind in (MonolingualData, TaggingData):
        with pytest.raises(InputError, match=r"streaming=true is for task=translation"):
            kind(config, tokenizer_config())


def test_a_stream_of_nothing_usable_ends(folder: Path) -> None:
    write(folder / "part-3.tsv", [("a " * 60, "b")] * 50)
    module = stream(folder, str(folder / "part-3.tsv"))
    module._initial_tokenizer = stream(folder).tokenizer
    with pytest.raises(InputError, match="no pair of the 1 shards is kept"):
        module.row[0]


def test_the_vocabulary_is_learnt_from_the_first_pairs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = stream(folder)
    read = []
    pairs = Shard.pairs
    monkeypatch.setattr(
        Shard, "pairs", lambda self, place: (read.append(self.urls), pairs(self, place))[1]
    )
    object.__setattr__(module._tokenizer_config, "max_sentences", 30)
    first = module.tokenizer.fingerprint
    assert read == [(str(folder / "part-0.tsv"),)]
    again = stream(folder)
    object.__setattr__(again._tokenizer_config, "max_sentences", 30)
    assert again.tokenizer.fingerprint == first
    assert len(read) == 1  # the second from the cache


def test_training_targets_are_the_first_of_the_stream(folder: Path) -> None:
    module = stream(folder)
    rows = module.training_targets(5)
    kept = module.tokenizer.decode_target(rows)
    assert len(kept) == 5 and set(kept) <= {target for _, target in PAIRS}
    assert np.asarray(rows[0]).ndim == 1
