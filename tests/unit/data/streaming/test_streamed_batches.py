"""The batches of a stream are the same after a restart; several ranks share its buffers out."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.data.streams import (
    PAIRS,
    Ranks,
    Read,
    epoch_of,
    state_at,
    stream,
    write,
    write_shards,
)
from transformer.common.errors import InputError
from transformer.data.batching.batch_sequence import RankAssignment
from transformer.data.batching.loader import UpdateLoader
from transformer.data.datamodules.translation import TranslationData
from transformer.data.streaming import streamed_batches
from transformer.data.streaming.shards import _SHARD_BITS, Position


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shards(tmp_path)


def same(first: Any, second: Any) -> bool:
    sides = ("source", "target_output")
    return all(torch.equal(getattr(first, side), getattr(second, side)) for side in sides)


def updates(module: TranslationData, done: int, **shares: int) -> UpdateLoader[Any]:
    return UpdateLoader(
        module._training,
        module.sequence,
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
    whole = [module._training[module.sequence[number]] for number in range(total)]
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
    state = state_at(module, last)
    expected = module.sequence[last].pairs.tolist()
    filled = []
    fill = streamed_batches.BufferReader.fill
    monkeypatch.setattr(
        streamed_batches.BufferReader,
        "fill",
        lambda self, *wanted: (filled.append(wanted), fill(self, *wanted))[1],
    )
    again = stream(folder)
    again.sequence.load_state_dict(state)
    assert again.sequence[last].pairs.tolist() == expected
    assert len(filled) == 1


def test_an_earlier_buffer_is_read_again(folder: Path) -> None:
    module = stream(folder)
    keys = [module.sequence[number].pairs.tolist() for number in range(12)]
    for number in (11, 0, 5, 11):
        assert module.sequence[number].pairs.tolist() == keys[number]


def test_other_shards_or_seeds_begin_the_epoch_again(folder: Path) -> None:
    module = stream(folder)
    last = epoch_of(module, 1)[-1]
    state = state_at(module, last)
    for other in (stream(folder, str(folder / "part-*.jsonl")), stream(folder, seed=2)):
        other.sequence.load_state_dict(state)
        assert other.sequence[last].epoch == 1
        assert other.sequence._known[0].position == Position(1)
    longer = stream(folder, buffer=30)
    longer.sequence.load_state_dict(state)
    _ = longer.sequence[last]
    ordinal = module.sequence._ordinal(last)
    assert longer.sequence._known[0].position == module.sequence._known[ordinal].position
    assert longer.sequence.identity() != module.sequence.identity()


def test_a_state_without_a_position_is_refused(folder: Path) -> None:
    module = stream(folder)
    with pytest.raises(InputError, match="no position"):
        module.sequence.load_state_dict(state_at(module, 0) | {"partitions": []})


def test_the_largest_batch_is_of_the_buffer_that_is_there(folder: Path) -> None:
    module = stream(folder)
    last = epoch_of(module, 1)[-1]
    again = stream(folder)
    again.sequence.load_state_dict(state_at(module, last))
    _, key = again.sequence.largest()
    assert key.epoch == 1
    assert len(again.sequence._known) == 1


def test_epochs_of_a_stream_are_known_to_whole_shards(folder: Path) -> None:
    module = stream(folder)
    numbers = range(epoch_of(module, 1)[-1])
    epochs = [module.sequence.epochs(number) for number in numbers]
    assert epochs == sorted(epochs) and epochs[0] == 0 and 1 in epochs
    assert {round(3 * epoch) for epoch in epochs} <= set(range(6))
    for number in numbers:
        again = stream(folder)
        again.resume_from(
            {"row": state_at(module, number), "first": number, "since": 4}
            | {"ranks": 1, "accumulation": 1, "epoch_length": None, "identity": {}}
        )
        # Nobody knows how long the first shard is: what is read of it is no number.
        assert again.epochs(4) == (epochs[number] or None)
    # Each epoch has an order of its own.
    reader = stream(folder, buffer=1000).sequence._reader
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
        module.sequence[0]


def taken(trained: list[list[Read]]) -> Counter[tuple[int, int]]:
    """How often each pair of each epoch was trained on."""
    return Counter(
        (read.epoch, pair) for of_rank in trained for read in of_rank for pair in read.pairs
    )


def numbers(trained: list[list[Read]]) -> list[int]:
    return sorted(read.number for of_rank in trained for read in of_rank)


@pytest.mark.parametrize(
    "changes",
    [
        [(1, 8), (2, 0)],
        [(2, 4), (1, 0)],
        [(2, 5), (4, 0)],
        [(4, 3), (2, 0)],
        [(2, 3), (3, 1), (3, 1), (1, 2), (4, 0)],
        [(8, 2), (3, 0)],
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", ["tsv", "tsv.gz", "parquet"])
def test_other_ranks_lose_and_repeat_no_pair(
    folder: Path, changes: list[tuple[int, int]], suffix: str
) -> None:
    """(ranks, updates) after each other; the last until all of them have left the second epoch."""
    make = partial(stream, folder, str(folder / f"part-*.{suffix}"), buffer=9, max_length=9)
    alone = Ranks(make, 1).train(80)
    kept = {pair for pair in taken(alone) if pair[0] < 2}
    assert 0 < len(kept) < 2 * len(PAIRS)
    trained: list[list[Read]] = []
    state, done = None, 0
    for ranks, updates in changes:
        run = Ranks(make, ranks, 2, state, done)
        if updates:
            trained += run.train(updates)
        else:
            latest = [-1] * ranks
            while min(latest) < 2:
                of_ranks = run.train(1)
                trained += of_ranks
                latest = [reads[-1].epoch for reads in of_ranks]
        state, done = run.state(), run.done
    found = {pair: times for pair, times in taken(trained).items() if pair[0] < 2}
    assert found == dict.fromkeys(kept, 1)
    assert numbers(trained) == list(range(len(numbers(trained))))


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_resumed_ranks_are_the_uninterrupted_ones(folder: Path, workers: int) -> None:
    """Also while they use up what two ranks have left."""
    make = partial(stream, folder, buffer=9, workers=workers)
    two = Ranks(make, 2)
    two.train(7)
    state = two.state()
    whole = Ranks(make, 3, 2, state, 7)
    expected = whole.train(20)
    parts: list[list[Read]] = [[], [], []]
    done = 7
    for updates in (1, 1, 4, 14):
        run = Ranks(make, 3, 2, state, done)
        for rank, reads in enumerate(run.train(updates)):
            parts[rank] += reads
        state, done = run.state(), run.done
        run.close()
    assert parts == expected
    two.close()
    whole.close()


def test_ranks_advance_at_the_same_pace(folder: Path) -> None:
    """The short buffer at the end of each epoch is not always of the same rank."""
    write(folder / "part-3.tsv", PAIRS[:50])
    make = partial(stream, folder, str(folder / "part-3.tsv"), buffer=12, batch_tokens=48)
    ranks = Ranks(make, 5)
    epochs = [reads[-1].epoch for reads in ranks.train(150)]
    assert min(epochs) > 8
    assert max(epochs) - min(epochs) <= 3


def test_ranks_encode_together_what_one_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, batches, encoded = 25, 160, Counter[int]()
    encode = streamed_batches.encode

    def counted(ranks: int, pairs: Any, *rest: Any, **options: Any) -> Any:
        encoded[ranks] += len(pairs)
        return encode(pairs, *rest, **options)

    make = partial(stream, folder, buffer=buffer)
    for ranks in (1, 2, 4, 8):
        monkeypatch.setattr(streamed_batches, "encode", partial(counted, ranks))
        pairs = taken(Ranks(make, ranks).train(batches // ranks)).total()
        assert pairs <= encoded[ranks] <= pairs + ranks * buffer
    assert encoded[8] - encoded[1] <= 8 * buffer < encoded[1] / 2


def test_a_stream_of_almost_nothing_is_shared_out(folder: Path) -> None:
    """One buffer an epoch, and more ranks: each makes whole epochs."""
    write(folder / "part-3.tsv", PAIRS[:10])
    make = partial(stream, folder, str(folder / "part-3.tsv"), buffer=10)
    trained = Ranks(make, 3).train(6)
    assert [{read.epoch for read in reads} for reads in trained] == [{0, 3}, {1, 4}, {2, 5}]
    write(folder / "part-3.tsv", [("a " * 60, "b")] * 50)
    module = make()
    module._initial_tokenizer = stream(folder).tokenizer
    module.sequence.assign(1, 3)
    with pytest.raises(InputError, match="no pair of the 1 shards is kept"):
        module.sequence[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": -1}, r"row\.first=-1 must be at least 0"),
        ({"partitions": []}, "no position"),
        ({"partitions": [{"pending": [{}]}]}, r"row\.partitions\.pending\.position is missing"),
    ],
)
def test_a_state_that_no_run_writes_is_refused(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    row = stream(folder).sequence
    state = state_at(stream(folder), 0)
    with pytest.raises(InputError, match=message):
        row.load_state_dict(state | changes)
