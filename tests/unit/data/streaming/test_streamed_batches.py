"""A stream has every pair once an epoch, on any ranks, and is the same after a restart."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.data.corpora import tokenizer_config, translation_data
from tests.helpers.data.streams import (
    PAIRS,
    Ranks,
    Read,
    epoch_of,
    state_at,
    stream,
    texts,
    write,
    write_shards,
)
from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.data.batching.batch_sequence import RankAssignment
from transformer.data.batching.loader import UpdateLoader
from transformer.data.datamodules.translation import TranslationData
from transformer.data.streaming.shards import Position
from transformer.data.streaming.streamed_batches import StreamState
from transformer.data.tokenization.tags import Tags
from transformer.settings.data import AugmentationConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_shards(tmp_path)


def same(first: Any, second: Any) -> bool:
    sides = ("source", "target_output")
    return all(torch.equal(getattr(first, side), getattr(second, side)) for side in sides)


def updates(module: TranslationData, done: Callable[[], int]) -> UpdateLoader[Any]:
    return UpdateLoader(
        module._training,
        module.sequence,
        assignment=RankAssignment(),
        rank=0,
        done=done,
        workers=module._data.workers,
        pin_memory=False,
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_resumed_stream_is_the_uninterrupted_one(folder: Path, workers: int) -> None:
    sampled = partial(stream, folder, sampling=0.3, augmentation=AugmentationConfig(emoji=0.3))
    module = sampled()
    module.prepare_data()
    total = 2 * len(epoch_of(module, 0))
    whole = [module._training[module.sequence[number]] for number in range(total)]
    for done in (5, total // 2 + 3):
        before = sampled(workers=workers)
        trained = [0]
        loader = updates(before, lambda trained=trained: trained[0])
        stopped = iter(loader)
        # What the workers have read ahead of training must not count.
        assert all(same(next(stopped).batches[0], whole[number]) for number in range(done))
        trained[0] = done
        state = loader.state_dict()
        stopped.close()
        before.teardown("fit")
        after = sampled(workers=workers)
        resumed = updates(after, lambda done=done: done)
        resumed.load_state_dict(state)
        for number, update in zip(range(done, total), resumed, strict=False):
            assert update.numbers == [number]
            assert same(update.batches[0], whole[number])
        resumed.close()
        after.teardown("fit")


def test_other_shards_or_seeds_begin_the_epoch_again(folder: Path) -> None:
    def first_position(module: TranslationData, number: int) -> Position:
        state = typed(StreamState, state_at(module, number), "row")
        return state.partitions[0].position

    module = stream(folder)
    last = epoch_of(module, 1)[-1]
    state = state_at(module, last)
    for other in (stream(folder, str(folder / "part-*.jsonl")), stream(folder, seed=2)):
        other.sequence.load_state_dict(state)
        assert first_position(other, last) == Position(1)
        assert other.sequence[last].epoch == 1
    # Another size of buffers goes on where the stream is.
    longer = stream(folder, buffer=30)
    longer.sequence.load_state_dict(state)
    assert first_position(longer, last) == first_position(module, last) > Position(1)
    assert longer.sequence.identity() != module.sequence.identity()


def test_the_largest_batch_is_of_the_buffer_that_is_there(folder: Path) -> None:
    module = stream(folder)
    last = epoch_of(module, 1)[-1]
    again = stream(folder)
    again.sequence.load_state_dict(state_at(module, last))
    _, key = again.sequence.largest()
    assert key.epoch == 1


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


def taken(trained: list[list[Read]]) -> Counter[tuple[int, int]]:
    """How often each pair of each epoch was trained on."""
    return Counter(
        (read.epoch, pair) for of_rank in trained for read in of_rank for pair in read.pairs
    )


def numbers(trained: list[list[Read]]) -> list[int]:
    return sorted(read.number for of_rank in trained for read in of_rank)


@pytest.mark.parametrize(
    ("suffix", "changes"),
    [
        ("tsv.gz", [(4, 3), (2, 0)]),
        ("tsv", [(2, 3), (3, 1), (3, 1), (1, 2), (4, 0)]),
        ("parquet", [(8, 2), (3, 0)]),
    ],
)
def test_other_ranks_lose_and_repeat_no_pair(
    folder: Path, suffix: str, changes: list[tuple[int, int]]
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
    counts = {pair: times for pair, times in taken(trained).items() if pair[0] < 2}
    assert counts == dict.fromkeys(kept, 1)
    assert numbers(trained) == list(range(len(numbers(trained))))


def test_resumed_ranks_are_the_uninterrupted_ones(folder: Path) -> None:
    """Also while they use up what two ranks have left."""
    make = partial(stream, folder, buffer=9)
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
    assert parts == expected


def test_ranks_advance_at_the_same_pace(folder: Path) -> None:
    """The short buffer at the end of each epoch is not always of the same rank."""
    write(folder / "part-3.tsv", PAIRS[:50])
    make = partial(stream, folder, str(folder / "part-3.tsv"), buffer=12, batch_tokens=48)
    ranks = Ranks(make, 5)
    epochs = [reads[-1].epoch for reads in ranks.train(150)]
    assert min(epochs) > 8
    assert max(epochs) - min(epochs) <= 3


def test_a_tiny_stream_is_distributed_over_more_ranks_than_buffers(folder: Path) -> None:
    """One buffer an epoch, and more ranks: each makes whole epochs."""
    write(folder / "part-3.tsv", PAIRS[:10])
    make = partial(stream, folder, str(folder / "part-3.tsv"), buffer=10)
    trained = Ranks(make, 3).train(6)
    assert [{read.epoch for read in reads} for reads in trained] == [{0, 3}, {1, 4}, {2, 5}]
    # Without one usable pair it ends.
    write(folder / "part-3.tsv", [("a " * 60, "b")] * 50)
    config = stream(folder, str(folder / "part-3.tsv"), buffer=10)._data
    tokenizer = stream(folder).tokenizer
    module = translation_data(config, tokenizer_config(), initial_tokenizer=tokenizer)
    module.sequence.assign(1, 3)
    with pytest.raises(InputError, match="no pair of the 1 shards is kept"):
        module.sequence[1]


def test_a_malformed_state_of_a_stream_is_refused(folder: Path) -> None:
    row = stream(folder).sequence
    state = state_at(stream(folder), 0)
    with pytest.raises(InputError, match=r"row\.first=-1 must be at least 0"):
        row.load_state_dict(state | {"first": -1})
    with pytest.raises(InputError, match="no position"):
        row.load_state_dict(state | {"partitions": []})


@pytest.mark.parametrize(
    "names",
    [
        ["part-0.jsonl", "part-1.tsv.gz", "part-2.parquet"],
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
    batches = [module._training[module.sequence[number]] for number in epoch_of(module, 1)]
    assert all(b.size * max(b.source.shape[1], b.target_output.shape[1]) <= 96 for b in batches)


def test_a_changed_pair_that_does_not_fit_stays_in_its_epoch(folder: Path) -> None:
    longest = max(len(source) for source, _ in PAIRS)
    module = stream(folder, augmentation=AugmentationConfig(joined=1.0), max_length=longest)
    targets = texts(module, epoch_of(module, 0))
    clean = {target for _, target in PAIRS}
    assert len(targets) == len(PAIRS) and sum(text in clean for text in targets) > 0


def test_a_line_that_is_left_out_is_not_joined_to_another(folder: Path) -> None:
    orphans = [(f"{source} e e", "") for source, _ in PAIRS[:9]]
    lines = [line for lines in zip(PAIRS[:9], orphans, strict=True) for line in lines]
    write(folder / "part-3.tsv", lines)
    augmentation = AugmentationConfig(joined=1.0)
    train = str(folder / "part-3.tsv")
    module = stream(folder, train, augmentation=augmentation, buffer=100, batch_tokens=400)
    batches = [module._training[module.sequence[number]] for number in epoch_of(module, 0)]
    sources = [row for batch in batches for row in batch.source.tolist()]
    once = {source for source, _ in PAIRS[:9]}
    joined = {f"{first} {second}" for first in once for second in once - {first}}
    assert len(sources) == 9
    assert {*module.tokenizer.decode_source(sources)} <= joined


def test_duplicates_are_left_out_within_a_buffer(folder: Path) -> None:
    write(folder / "part-3.tsv", PAIRS[:10] * 2)
    write(folder / "part-4.tsv", [("a " * 60, "b"), ("", "c"), *PAIRS[:2]])
    train = [str(folder / "part-3.tsv"), str(folder / "part-4.tsv")]
    module = stream(folder, train, buffer=1000)
    assert len(texts(module, epoch_of(module, 0))) == 10
    module = stream(folder, train, buffer=1000, deduplicate=False)
    assert len(texts(module, epoch_of(module, 0))) == 22


def test_a_stream_has_no_links_and_no_tags(folder: Path) -> None:
    plain = stream(folder)
    linked = translation_data(plain._data, tokenizer_config(), links=True)
    with pytest.raises(InputError, match=r"loss\.alignment_weight=0"):
        linked.prepare_data()
    with pytest.raises(InputError, match="reads files of one corpus"):
        stream(folder, corpus="pocket").prepare_data()
    with pytest.raises(InputError, match="training needs a validation text"):
        stream(folder, validation=None).prepare_data()
    tagged = plain.tokenizer.with_tags(Tags(sentences=3, subwords=40))
    with pytest.raises(InputError, match=r"the run has .*data\.documents=3 .* cannot change"):
        _ = translation_data(plain._data, tokenizer_config(), initial_tokenizer=tagged).tokenizer
