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
from transformer.data.streaming import streamed_batches
from transformer.data.streaming.shards import EpochReader, Position, Shard, find_shards
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
        trained = [0]
        loader = updates(before, lambda trained=trained: trained[0])
        stopped = iter(loader)
        # What the workers have read ahead of training must not count.
        assert all(same(next(stopped).batches[0], whole[number]) for number in range(done))
        trained[0] = done
        state = loader.state_dict()
        stopped.close()
        before.teardown("fit")
        after = stream(folder, sampling=sampling, workers=workers)
        resumed = updates(after, lambda done=done: done)
        resumed.load_state_dict(state)
        for number, update in zip(range(done, total), resumed, strict=False):
            assert update.numbers == [number]
            assert same(update.batches[0], whole[number])
        resumed.close()
        after.teardown("fit")


def test_resuming_reads_one_buffer_and_none_before(
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


def test_each_epoch_has_an_order_of_shards_of_its_own(folder: Path) -> None:
    shards = find_shards(str(folder / "part-*.tsv"), ("x", "y"))
    orders = set()
    for epoch in range(6):
        pairs = [pair for _, pair in EpochReader(shards, 3, Position(epoch)).take(1000)]
        assert sorted(pairs) == sorted(PAIRS)
        orders.add(tuple(pairs))
    assert 1 < len(orders) <= 6


def test_a_stream_warns_once_of_what_it_leaves_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = stream(folder, max_length=8)
    epoch_of(module, 1)
    lines = [line for line in caplog.messages if "left out (" in line]
    assert len(lines) == 1
    assert lines[0].startswith("train, so far: ") and "(data.max_length)" in lines[0]


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
        ("tsv", [(1, 8), (2, 0)]),
        ("parquet", [(2, 4), (1, 0)]),
        ("tsv.gz", [(4, 3), (2, 0)]),
        ("tsv", [(2, 3), (3, 1), (3, 1), (1, 2), (4, 0)]),
        ("parquet", [(8, 2), (3, 0)]),
    ],
    ids=str,
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


def test_ranks_together_encode_each_buffer_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_tiny_stream_is_distributed_over_more_ranks_than_buffers(folder: Path) -> None:
    """One buffer an epoch, and more ranks: each makes whole epochs."""
    write(folder / "part-3.tsv", PAIRS[:10])
    make = partial(stream, folder, str(folder / "part-3.tsv"), buffer=10)
    trained = Ranks(make, 3).train(6)
    assert [{read.epoch for read in reads} for reads in trained] == [{0, 3}, {1, 4}, {2, 5}]
    write(folder / "part-3.tsv", [("a " * 60, "b")] * 50)
    # Without one usable pair it ends, on one rank and on several.
    config = stream(folder, str(folder / "part-3.tsv"), buffer=10)._data
    for rank, ranks in ((0, 1), (1, 3)):
        module = translation_data(
            config, tokenizer_config(), initial_tokenizer=stream(folder).tokenizer
        )
        module.sequence.assign(rank, ranks)
        with pytest.raises(InputError, match="no pair of the 1 shards is kept"):
            module.sequence[rank]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": -1}, r"row\.first=-1 must be at least 0"),
        ({"partitions": []}, "no position"),
        ({"partitions": [{"pending": [{}]}]}, r"row\.partitions\.pending\.position is missing"),
    ],
)
def test_a_malformed_state_of_a_stream_is_refused(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    row = stream(folder).sequence
    state = state_at(stream(folder), 0)
    with pytest.raises(InputError, match=message):
        row.load_state_dict(state | changes)


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
    batches = [module._training[module.sequence[number]] for number in epoch_of(module, 1)]
    assert all(b.size * max(b.source.shape[1], b.target_output.shape[1]) <= 96 for b in batches)


def test_disturbed_pairs_differ_by_epoch_and_stay_those_of_their_seed(folder: Path) -> None:
    """A resumed stream goes on with them; a blank text stays blank, and a joined pair has two."""
    write(folder / "part-3.tsv", [("", "")])
    settings = AugmentationConfig(emoji=0.3, joined=0.3)
    made = [stream(folder, augmentation=settings) for _ in range(2)]
    epochs = [texts(made[0], epoch_of(made[0], epoch)) for epoch in (0, 1)]
    clean = {target for _, target in PAIRS}
    changed = [[text for text in epoch if text not in clean] for epoch in epochs]
    assert all(20 < len(targets) < 70 for targets in changed) and set(changed[0]) != set(changed[1])
    assert [len(epoch) for epoch in epochs] == [len(PAIRS)] * 2
    numbers = epoch_of(made[0], 1)
    made[1].sequence.load_state_dict(state_at(made[0], numbers[0]))
    assert texts(made[1], numbers) == epochs[1]
    identity = made[0].sequence.identity()
    assert identity == made[1].sequence.identity() != stream(folder).sequence.identity()


def test_a_changed_pair_that_does_not_fit_stays_in_its_epoch(folder: Path) -> None:
    longest = max(len(source) for source, _ in PAIRS)
    module = stream(folder, augmentation=AugmentationConfig(joined=1.0), max_length=longest)
    targets = texts(module, epoch_of(module, 0))
    clean = {target for _, target in PAIRS}
    assert len(targets) == len(PAIRS) and sum(text in clean for text in targets) > 0


def test_duplicates_are_left_out_within_a_buffer(folder: Path) -> None:
    write(folder / "part-3.tsv", PAIRS[:10] * 2)
    write(folder / "part-4.tsv", [("a " * 60, "b"), ("", "c"), *PAIRS[:2]])
    train = [str(folder / "part-3.tsv"), str(folder / "part-4.tsv")]
    module = stream(folder, train, buffer=1000)
    assert len(texts(module, epoch_of(module, 0))) == 10
    module = stream(folder, train, buffer=1000, deduplicate=False)
    assert len(texts(module, epoch_of(module, 0))) == 22


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"corpus": "pocket"}, "reads files of one corpus of single sentences without tags"),
        ({"alignment": "links"}, "single sentences without tags or links"),
        ({"validation": None}, "training needs a validation text"),
    ],
)
def test_settings_that_a_stream_cannot_have_are_refused(
    folder: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        stream(folder, **changes).prepare_data()


def test_a_stream_has_no_links_and_no_tags(folder: Path) -> None:
    plain = stream(folder)
    linked = translation_data(plain._data, tokenizer_config(), links=True)
    with pytest.raises(InputError, match=r"loss\.alignment_weight=0"):
        linked.prepare_data()
    tagged = plain.tokenizer.with_tags(Tags(sentences=3, subwords=40))
    with pytest.raises(InputError, match=r"the run has .*data\.documents=3 .* cannot change"):
        _ = translation_data(plain._data, tokenizer_config(), initial_tokenizer=tagged).tokenizer


def test_the_vocabulary_is_learned_from_the_first_pairs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    pairs = Shard.pairs
    monkeypatch.setattr(Shard, "pairs", lambda self: (read.append(self.urls), pairs(self))[1])
    config = stream(folder)._data
    # The second run has it from the cache.
    for _ in range(2):
        module = translation_data(config, tokenizer_config(max_sentences=30))
        assert module.tokenizer.source_vocab_size == 268
        assert read == [(str(folder / "part-0.tsv"),)]
