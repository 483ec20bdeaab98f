"""The batches of a stream are the same after a restart, and on any number of ranks."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.data.streams import epoch_of, stream, write, write_shards
from transformer.common.errors import InputError
from transformer.data.batching.batch_sequence import RankAssignment
from transformer.data.batching.loader import UpdateLoader
from transformer.data.datamodules.streaming import StreamedData
from transformer.data.streaming import streamed_batches
from transformer.data.streaming.shards import _SHARD_BITS, Position


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shards(tmp_path)


def same(first: Any, second: Any) -> bool:
    sides = ("source", "target_output")
    return all(torch.equal(getattr(first, side), getattr(second, side)) for side in sides)


def updates(module: StreamedData, done: int, **shares: int) -> UpdateLoader[Any]:
    return UpdateLoader(
        module._training,
        module.row,
        assignment=RankAssignment(**shares),
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
    for done in (total // 2 + 3,) if workers else (1, 5, total // 2 + 3):
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
    fill = streamed_batches.BufferReader.fill
    monkeypatch.setattr(
        streamed_batches.BufferReader,
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


def test_other_shards_or_seeds_begin_the_epoch_again(folder: Path) -> None:
    module = stream(folder)
    last = epoch_of(module, 1)[-1]
    state = module.row.state_dict(last)
    other = stream(folder, str(folder / "part-*.jsonl"))
    other.row.load_state_dict(state)
    assert other.row._starts[0][1].shard == 0
    assert other.row[last].epoch == 1
    seeded = stream(folder, seed=2)
    seeded.row.load_state_dict(state)
    assert seeded.row._starts == [(state["first"], Position(1))]
    longer = stream(folder, buffer=30)
    longer.row.load_state_dict(state)
    assert longer.row._starts[0] == module.row._starts[module.row._known(last)]
    assert longer.row.identity() != module.row.identity()


def test_the_largest_batch_is_of_the_buffer_that_is_there(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = stream(folder)
    last = epoch_of(module, 1)[-1]
    again = stream(folder)
    again.row.load_state_dict(module.row.state_dict(last))
    again.row[last]
    with caplog.at_level(logging.INFO):
        _, key = again.row.largest()
    assert key.epoch == 1
    assert "from its beginning" not in caplog.text


def test_epochs_of_a_stream_are_known_to_whole_shards(folder: Path) -> None:
    module = stream(folder)
    numbers = range(epoch_of(module, 1)[-1])
    epochs = [module.row.epochs(number) for number in numbers]
    assert epochs == sorted(epochs) and epochs[0] == 0 and 1 in epochs
    assert {round(3 * epoch) for epoch in epochs} <= set(range(6))
    for number in numbers:
        again = stream(folder)
        again.resume_from(
            {"row": module.row.state_dict(number), "first": number, "since": 4}
            | {"ranks": 1, "accumulation": 1, "epoch_length": None, "identity": {}}
        )
        # Nobody knows how long the first shard is: what is read of it is no number.
        assert again.epochs(4) == (epochs[number] or None)
    # Each epoch has an order of its own.
    reader = stream(folder, buffer=1000).row._reader
    read = (reader.fill(Position(epoch)).numbers >> _SHARD_BITS for epoch in range(6))
    orders = [tuple(dict.fromkeys(shards.tolist())) for shards in read]
    assert {len(order) for order in orders} == {3}
    assert len(set(orders)) > 1


def test_a_stream_warns_once_of_what_it_leaves_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = stream(folder, max_length=8)
    epoch_of(module, 1)
    lines = [line for line in caplog.messages if "left out (" in line]
    assert len(lines) == 1
    assert lines[0].startswith("train, so far: ") and "(data.max_length)" in lines[0]


def test_a_stream_of_nothing_usable_ends(folder: Path) -> None:
    write(folder / "part-3.tsv", [("a " * 60, "b")] * 50)
    module = stream(folder, str(folder / "part-3.tsv"))
    module._initial_tokenizer = stream(folder).tokenizer
    with pytest.raises(InputError, match="no pair of the 1 shards is kept"):
        module.row[0]
