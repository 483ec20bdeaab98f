"""Training text as a stream: each rank reads, encodes, plans and shuffles one buffer at a time.

In order: what a rank has left to read (`Partition`), the reader of buffers, the sequence of
batches, and the stream as the data module sees it. Validation and test text are ordinary files.
"""

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int
from torch.utils.data import Dataset

from transformer.common.errors import BadSource, InputError
from transformer.common.processes import begin_pool_process
from transformer.common.schema import typed
from transformer.data.batching.batch import Batch, collate
from transformer.data.batching.batch_sequence import (
    BatchKey,
    BatchPlan,
    BatchSequence,
    EpochBatches,
    Gather,
    Lengths,
)
from transformer.data.binarized.corpus import EncodedCorpus, encode
from transformer.data.binarized.dataset import DISTURBANCE, SegmentationSampler, pair_seeds
from transformer.data.streaming.shards import (
    Count,
    EpochReader,
    Position,
    Shard,
    find_shards,
    line_name,
    shards_fingerprint,
)
from transformer.data.text.parallel import Pair
from transformer.data.text.training_filters import Filters, first_occurrences, log_level
from transformer.data.text_noise import UNCHANGED, Linked, disturbed, drawn_kinds
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.data import AugmentationConfig, DataConfig
from transformer.settings.sources import SourceConfig
from transformer.settings.tokenizer import TokenizerConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class Pending:
    """A buffer of which so many batches are used."""

    position: Position
    used: Count = 0


@dataclass(frozen=True)
class Partition:
    """What a rank has left: pending buffers, then every buffer of its own from ``next`` on."""

    pending: Sequence[Pending] = ()
    next: Position = field(default_factory=Position)

    @property
    def position(self) -> Position:
        """The earliest position."""
        return min([self.next, *(buffer.position for buffer in self.pending)])


@dataclass(frozen=True)
class StreamState:
    """State of a stream in a checkpoint: what each rank has left before a batch."""

    first: Count
    """The number of the batch."""
    shards: str
    seed: int
    partitions: Sequence[Partition]

    def __post_init__(self) -> None:
        if not self.partitions:
            raise InputError(
                "the checkpoint has no position in its stream; take another checkpoint"
            )


def repartition(
    partitions: Sequence[Partition], skip: Callable[[Position], Position], ranks: int
) -> list[Partition]:
    """Distribute what the old ranks have left over ``ranks`` new ranks, each buffer once.

    First come their pending buffers, and those that slower ranks did not reach before the position
    of the fastest; from there on each rank has its own buffers again. ``skip`` returns the position
    of the next buffer.
    """
    pending = [buffer for partition in partitions for buffer in partition.pending]
    position = min(partition.next for partition in partitions)
    end = max(partition.next for partition in partitions)
    while position < end:
        if position >= partitions[position.rank(len(partitions))].next:
            pending.append(Pending(position))
        position = skip(position)
    pending.sort()
    return [Partition(pending[rank::ranks], end) for rank in range(ranks)]


@dataclass(frozen=True)
class Buffer:
    """The kept pairs of a buffer, encoded."""

    position: Position
    numbers: Int[np.ndarray, " pair"]
    """Number of each pair, the same in every epoch."""
    corpus: EncodedCorpus
    """In memory, with texts for subword sampling."""
    lengths: Lengths
    read: int
    dropped: Counter[str]
    next: Position


class BufferReader:
    """Fills or skips buffers; continues reading if a buffer follows the last one."""

    def __init__(
        self,
        shards: Sequence[Shard],
        data: DataConfig,
        tokenizer: Tokenizer,
        augmentation: AugmentationConfig,
    ) -> None:
        self.shards = shards
        self.data = data
        self.tokenizer = tokenizer
        self.augmentation = augmentation
        longest = min(data.max_length, data.budget - 1)
        self.filters = Filters(longest, data.filtered_ratio, data.deduplicate)
        self._sampler = SegmentationSampler(tokenizer, data)
        # The position after the last buffer, where the open epoch reads on.
        self._position: Position | None = None
        self._epoch: EpochReader | None = None

    def fill(self, position: Position, rank: int = 0, ranks: int = 1) -> Buffer:
        """Return the first buffer of a rank from a position on; raises InputError as reading."""
        while position.rank(ranks) != rank:
            position = self.skip(position)
        numbered_pairs = self._epoch_at(position).take(self.data.buffer)
        after = self._moved(position, len(numbered_pairs))
        numbers = np.array([number for number, _ in numbered_pairs], dtype=np.int64)
        pairs = [pair for _, pair in numbered_pairs]
        first = first_occurrences(pairs) if self.filters.deduplicate else None
        texts = self.tokenizer.config.sampling > 0
        try:
            batch, kept, dropped = encode(pairs, self.tokenizer, self.filters, first, texts=texts)
        except BadSource as error:
            index = [source for source, _ in pairs].index(error.source)
            where = line_name(self.shards, int(numbers[index]))
            raise InputError(f"{where}: {error}") from error
        numbers = numbers[kept]
        if self.augmentation.active:
            clean = [pairs[index] for index in kept]
            batch = self._augmented(batch, clean, position.epoch, numbers)
        corpus = EncodedCorpus(batch)
        lengths = self._sampler.lengths(corpus, numbers)
        return Buffer(position, numbers, corpus, lengths, len(pairs), dropped, after)

    def skip(self, position: Position) -> Position:
        """Return the position of the next buffer, without encoding the pairs of this one."""
        return self._moved(position, self._epoch_at(position).skip(self.data.buffer))

    def close(self) -> None:
        """Close the open shard; the next buffer opens it again."""
        if self._epoch is not None:
            self._epoch.close()
        self._position = None
        self._epoch = None

    def _epoch_at(self, position: Position) -> EpochReader:
        if self._epoch is None or position != self._position:
            self.close()
            self._epoch = EpochReader(self.shards, self.data.seed, position)
        return self._epoch

    def _moved(self, position: Position, count: int) -> Position:
        """Return the position after a buffer of ``count`` pairs, where reading continues."""
        assert self._epoch is not None
        if count == self.data.buffer:
            self._position = replace(self._epoch.position, buffer=position.buffer + 1)
        else:
            self._position = Position(position.epoch + 1)
            self._epoch = None
        return self._position

    def _augmented(
        self,
        batch: pa.RecordBatch,
        pairs: list[Pair],
        epoch: int,
        numbers: Int[np.ndarray, " pair"],
    ) -> pa.RecordBatch:
        """Return the encoded pairs, some of them changed, if the result fits.

        What the filters leave out is not joined to a pair, either.
        """
        seeds = pair_seeds(self.data.seed, epoch, numbers, DISTURBANCE)
        kinds = drawn_kinds(self.augmentation, seeds)
        drawn = np.flatnonzero(kinds != UNCHANGED)
        changed = [
            disturbed(
                int(kinds[index]),
                int(seeds[index]),
                Linked(pairs[index]),
                Linked(pairs[(index + 1) % len(pairs)]),
            ).pair
            for index in drawn.tolist()
        ]
        texts = self.tokenizer.config.sampling > 0
        rows, fitting, _ = encode(changed, self.tokenizer, self.filters, None, texts=texts)
        order = np.arange(len(pairs))
        order[drawn[fitting]] = len(pairs) + np.arange(len(fitting))
        return pa.concat_batches([batch, rows]).take(pa.array(order))


BufferRequest = tuple[Position, int, int]
"""A position, a rank and the number of ranks: the first buffer of the rank from there on."""


_NO_BATCHES = EpochBatches(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))


@dataclass(frozen=True)
class StreamedKey(BatchKey):
    """Key of a batch of a stream, with its content: other processes do not have the pairs."""

    content: EncodedCorpus = field(kw_only=True)


@dataclass(frozen=True)
class _Opened:
    """A buffer of this rank that has been read."""

    position: Position
    index: int
    """Batches of this rank before its first one."""
    used: int
    """Batches of the buffer that were used before."""
    count: int
    next: Position

    @property
    def end(self) -> int:
        return self.index + self.count - self.used


class StreamedBatches(BatchSequence):
    """Batches by number, which is fast in ascending order; each rank makes its own buffers.

    A rank reads, filters, encodes and plans every n-th buffer of the stream and nothing else; the
    text of the others is skipped (`BufferReader.skip`). Buffers have different numbers of batches,
    so that ranks, which all take as many, are not at the same position of the stream.
    """

    def __init__(self, reader: BufferReader, identity: str) -> None:
        self._reader = reader
        self._identity = identity
        self._data = reader.data
        # With workers, another process fills the next buffer.
        self._pool: ProcessPoolExecutor | None = None
        self._requested: tuple[BufferRequest, Future[Buffer]] | None = None
        self._rank = 0
        self._ranks = 1
        # The partitions of an earlier run, and the number of the batch that follows it.
        self._before: Sequence[Partition] = [Partition()]
        self._first = 0
        self._partition: Partition | None = None
        self._known: list[_Opened] = []
        # The open buffer; -1: none.
        self._open = -1
        self._buffer: Buffer
        self._plan: BatchPlan
        self._batches = _NO_BATCHES
        # Where the last buffers begin that have kept no pair.
        self._empty: Position | None = None
        # Pairs read, and pairs left out by reason, for one warning.
        self._read = 0
        self._dropped = Counter[str]()
        self._warned = False

    def assign(self, rank: int, ranks: int) -> None:
        self._rank = rank
        self._ranks = ranks
        self._restart()

    def __getitem__(self, number: int) -> BatchKey:
        """Return a batch; this rank's buffers up to it are read; InputError if none has a pair."""
        index = self._index(number)
        self._find(index)
        opened = self._known[self._open]
        return self._key(index - opened.index + opened.used)

    def largest(self) -> tuple[int, BatchKey]:
        """Return the positions of the largest batch of the open or the first buffer, and it."""
        if not len(self._batches):
            self._find(0)
        sizes = self._plan.positions(self._batches)
        index = int(sizes.argmax())
        return int(sizes[index]), self._key(index)

    @property
    def epoch_length(self) -> None:
        return None

    def epochs(self, number: int) -> float:
        """Return the number of epochs, in whole shards, before the buffer of a batch.

        The buffer is that of this rank; of the slowest one until a batch is made.
        """
        ordinal = self._ordinal(self._index(number))
        if ordinal < 0:
            position = min(partition.position for partition in self._before)
        else:
            position = self._known[ordinal].position
        return position.epoch + position.shard / len(self._reader.shards)

    def identity(self) -> dict[str, Any]:
        return {
            "shards": self._identity,
            "filters": str(self._reader.filters),
            "buffer": self._data.buffer,
            "batch_tokens": self._data.budget,
            "seed": self._data.seed,
            "tokenizer": self._reader.tokenizer.fingerprint,
            "sampling": self._reader.tokenizer.config.sampling,
            "augmentation": str(self._reader.augmentation),
        }

    def state_dict(self, number: int, gather: Gather) -> dict[str, Any]:
        """Return what all ranks have left at a batch, up to which each has read."""
        index = self._index(number)
        partition = self._own_partition()
        ordinal = self._ordinal(index)
        if ordinal >= 0:
            opened = self._known[ordinal]
            used = index - opened.index + opened.used
            pending = [Pending(opened.position, used)] if used < opened.count else []
            after = partition.next if ordinal < len(partition.pending) else opened.next
            partition = Partition([*pending, *partition.pending[ordinal + 1 :]], after)
        return {
            "first": number,
            "shards": self._identity,
            "seed": self._data.seed,
            "partitions": gather(asdict(partition)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the ranks were; with other shards or seed, from the start of an epoch."""
        before = typed(StreamState, state, "row")
        self._before = before.partitions
        self._first = before.first
        if (before.shards, before.seed) != (self._identity, self._data.seed):
            earliest = min(partition.position for partition in before.partitions)
            self._before = [Partition((), Position(earliest.epoch))]
        self._restart()

    def close(self) -> None:
        """End the process that reads ahead; the next buffer starts another."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = self._requested = None

    def _restart(self) -> None:
        self._partition = None
        self._known = []
        self._open = -1
        self._batches = _NO_BATCHES
        self._empty = None

    def _own_partition(self) -> Partition:
        """Return what this rank has left before its first batch."""
        if self._partition is None and len(self._before) == self._ranks:
            self._partition = self._before[self._rank]
        elif self._partition is None:
            self._partition = repartition(self._before, self._reader.skip, self._ranks)[self._rank]
            # A process that reads ahead must not use an open file of this one.
            self._reader.close()
        return self._partition

    def _index(self, number: int) -> int:
        """Return how many batches of this rank precede a batch."""
        assert number >= self._first
        return (number - self._first) // self._ranks

    def _ordinal(self, index: int) -> int:
        return bisect_right(self._known, index, key=lambda opened: opened.index) - 1

    def _find(self, index: int) -> None:
        """Open the buffer that has the batch of this index."""
        ordinal = self._ordinal(index)
        while ordinal < 0 or index >= self._known[ordinal].end:
            self._read_buffer(len(self._known))
            ordinal = self._ordinal(index)
        if ordinal != self._open:
            self._read_buffer(ordinal)

    def _read_buffer(self, ordinal: int) -> None:
        """Read a known buffer, or the next one."""
        partition = self._own_partition()
        buffer = self._filled(self._request(ordinal))
        self._buffer = buffer
        self._open = ordinal
        self._batches = _NO_BATCHES
        self._read += buffer.read
        self._dropped += buffer.dropped
        if not self._warned and log_level(self._dropped.total(), self._read) == logging.WARNING:
            self._reader.filters.report("train, so far", self._dropped, self._read)
            self._warned = True
        if len(buffer.numbers):
            self._plan = BatchPlan(
                *buffer.lengths, batch_tokens=self._data.budget, seed=self._data.seed
            )
            # A number of its own for each buffer of each epoch.
            self._batches = self._plan.epoch(buffer.position.epoch << 32 | buffer.position.buffer)
        if ordinal == len(self._known):
            used = partition.pending[ordinal].used if ordinal < len(partition.pending) else 0
            index = self._known[-1].end if self._known else 0
            count = len(self._batches)
            # With another data.batch_tokens, the buffer may have fewer batches than are used.
            used = min(used, count)
            self._known.append(_Opened(buffer.position, index, used, count, buffer.next))
        if self._data.workers:
            self._submit(self._request(ordinal + 1))
        self._check_kept(buffer)

    def _check_kept(self, buffer: Buffer) -> None:
        """Raise InputError if no pair of this rank is kept in as many epochs as there are ranks.

        In these it has made each buffer of an epoch once.
        """
        if len(buffer.numbers):
            self._empty = None
            return
        self._empty = self._empty or buffer.position
        epochs = buffer.next.epoch - self._empty.epoch
        if self._empty.buffer >= self._ranks:  # it began amid an epoch, which does not count
            epochs -= 1
        if epochs >= self._ranks:
            raise InputError(
                f"no pair of the {len(self._reader.shards)} shards is kept "
                f"({dict(buffer.dropped)}); give other text, or raise data.max_length"
            )

    def _request(self, ordinal: int) -> BufferRequest:
        partition = self._own_partition()
        if ordinal < len(self._known):
            return self._known[ordinal].position, 0, 1
        if ordinal < len(partition.pending):
            return partition.pending[ordinal].position, 0, 1
        after = partition.next if ordinal == len(partition.pending) else self._known[-1].next
        return after, self._rank, self._ranks

    def _filled(self, request: BufferRequest) -> Buffer:
        if not self._data.workers:
            return self._reader.fill(*request)
        if self._requested is None or self._requested[0] != request:
            self._submit(request)
        assert self._requested is not None
        try:
            return self._requested[1].result()
        except BrokenProcessPool as error:
            raise InputError(
                "the process that reads the stream was killed, perhaps for lack of memory; set "
                "data.buffer lower"
            ) from error

    def _submit(self, request: BufferRequest) -> None:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, initializer=_begin, initargs=(self._reader,))
        self._requested = request, self._pool.submit(_fill, request)

    def _key(self, index: int) -> StreamedKey:
        pairs = self._batches[index]
        epoch = self._known[self._open].position.epoch
        content = self._buffer.corpus.select(pairs)
        return StreamedKey(epoch, self._buffer.numbers[pairs], content=content)


# In the process that reads ahead.
_reader: BufferReader


def _begin(reader: BufferReader) -> None:
    global _reader
    _reader = reader
    begin_pool_process()


def _fill(request: BufferRequest) -> Buffer:
    return _reader.fill(*request)


@dataclass(frozen=True)
class StreamDataset(Dataset[Batch]):
    """Makes a batch of the pairs in a key, with segmentations sampled for its epoch."""

    sampler: SegmentationSampler

    def __getitem__(self, key: StreamedKey) -> Batch:
        pairs = np.arange(len(key.pairs))
        segmented = self.sampler.ids(key.content, pairs, key.epoch, key.pairs)
        return collate(segmented.source, segmented.target)


class TrainingStream:
    """Shards that are read again in each epoch, and never encoded as a whole."""

    def __init__(self, data: DataConfig, augmentation: AugmentationConfig) -> None:
        self._data = data
        self._augmentation = augmentation

    @cached_property
    def shards(self) -> list[Shard]:
        """The files; InputError if ``data.train`` names none."""
        data = self._data
        sides = (data.source, data.target)
        return find_shards(
            data.train,
            sides,
            data.max_line,
            data.features is not None,
            data.source_kind != "text",
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, sizes and times of the shards; InputError if one is missing."""
        return shards_fingerprint(self.shards)

    def beginning(self, limit: int) -> Iterator[Pair]:
        """Yield the first pairs."""
        return islice(chain.from_iterable(shard.pairs() for shard in self.shards), limit)

    def learned_tokenizer(
        self, config: TokenizerConfig, cache: Path, source: SourceConfig | None = None
    ) -> Tokenizer:
        """Learn a tokenizer from the first pairs, unless it is in the cache."""

        def pairs() -> Iterator[Pair]:
            return self.beginning(config.max_sentences)

        content = f"stream {self.fingerprint}"
        return Tokenizer.train(config, pairs, cache, content, self.shards[0].urls[0], source)

    def batches(self, tokenizer: Tokenizer) -> StreamedBatches:
        """The endless sequence of batches, of which each rank makes its own."""
        reader = BufferReader(self.shards, self._data, tokenizer, self._augmentation)
        return StreamedBatches(reader, self.fingerprint)

    def dataset(self, tokenizer: Tokenizer) -> StreamDataset:
        return StreamDataset(SegmentationSampler(tokenizer, self._data, training=True))
