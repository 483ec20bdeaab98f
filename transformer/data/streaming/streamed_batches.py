"""A rank's endless sequence of batches of a stream, planned and shuffled buffer by buffer."""

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from transformer.common.errors import InputError
from transformer.common.processes import begin_pool_process
from transformer.common.schema import typed
from transformer.data.batching.batch_sequence import BatchSequence, Gather
from transformer.data.batching.token_batches import BatchKey, BatchPlan, EpochBatches
from transformer.data.binarized.corpus import EncodedCorpus
from transformer.data.streaming.buffers import Buffer, BufferReader
from transformer.data.streaming.partitions import Partition, Pending, StreamState, repartition
from transformer.data.streaming.shards import Position
from transformer.data.text.training_filters import log_level

logger = logging.getLogger(__name__)

Wanted = tuple[Position, int, int]
"""A position, a rank and the number of ranks: the first buffer of the rank from there on."""

_NONE = EpochBatches(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))


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
        self._reader, self._identity = reader, identity
        self._shards, self._data = reader.shards, reader.data
        # With workers, another process fills the next buffer.
        self._pool: ProcessPoolExecutor | None = None
        self._coming: tuple[Wanted, Future[Buffer]] | None = None
        self._rank, self._ranks = 0, 1
        # The partitions of an earlier run, and the number of the batch that follows it.
        self._before: Sequence[Partition] = [Partition()]
        self._first = 0
        self._partition: Partition | None = None
        self._known: list[_Opened] = []
        # The open buffer; -1: none.
        self._open = -1
        self._buffer: Buffer
        self._plan: BatchPlan
        self._batches = _NONE
        # Where the last buffers begin that have kept no pair.
        self._empty: Position | None = None
        self._read, self._dropped, self._warned = 0, Counter[str](), False

    def assign(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
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
        return position.epoch + position.shard / len(self._shards)

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
        index, partition = self._index(number), self._own()
        ordinal = self._ordinal(index)
        if ordinal >= 0:
            opened = self._known[ordinal]
            used = index - opened.index + opened.used
            pending = [Pending(opened.position, used)] if used < opened.count else []
            after = partition.next if ordinal < len(partition.pending) else opened.next
            partition = Partition([*pending, *partition.pending[ordinal + 1 :]], after)
        partitions = gather(asdict(partition))
        at = {"first": number, "shards": self._identity, "seed": self._data.seed}
        return at | {"partitions": partitions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the ranks were; with other shards or seed, from the start of an epoch."""
        before = typed(StreamState, state, "row")
        self._before, self._first = before.partitions, before.first
        if (before.shards, before.seed) != (self._identity, self._data.seed):
            earliest = min(partition.position for partition in before.partitions)
            self._before = [Partition((), Position(earliest.epoch))]
        self._restart()

    def close(self) -> None:
        """End the process that reads ahead; the next buffer starts another."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = self._coming = None

    def _restart(self) -> None:
        self._partition, self._known, self._open = None, [], -1
        self._batches, self._empty = _NONE, None

    def _own(self) -> Partition:
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
        while (ordinal := self._ordinal(index)) < 0 or index >= self._known[ordinal].end:
            self._read_buffer(len(self._known))
        if ordinal != self._open:
            self._read_buffer(ordinal)

    def _read_buffer(self, ordinal: int) -> None:
        """Read a known buffer, or the next one."""
        partition = self._own()
        self._buffer = buffer = self._filled(self._wanted(ordinal))
        self._open, self._batches = ordinal, _NONE
        self._read += buffer.read
        self._dropped += buffer.dropped
        if not self._warned and log_level(self._dropped.total(), self._read) == logging.WARNING:
            self._reader.filters.report("train, so far", self._dropped, self._read)
            self._warned = True
        if len(buffer.numbers):
            data, position = self._data, buffer.position
            self._plan = BatchPlan(*buffer.lengths, batch_tokens=data.budget, seed=data.seed)
            self._batches = self._plan.epoch(position.epoch << 32 | position.buffer)
        if ordinal == len(self._known):
            used = partition.pending[ordinal].used if ordinal < len(partition.pending) else 0
            index, count = self._known[-1].end if self._known else 0, len(self._batches)
            # With another data.batch_tokens, the buffer may have fewer batches than are used.
            used = min(used, count)
            self._known.append(_Opened(buffer.position, index, used, count, buffer.next))
        if self._data.workers:
            self._submit(self._wanted(ordinal + 1))
        self._check_kept(buffer)

    def _check_kept(self, buffer: Buffer) -> None:
        """Raise InputError if no pair of this rank is kept in as many epochs as there are ranks.

        In these it has made each buffer of an epoch once.
        """
        if len(buffer.numbers):
            self._empty = None
            return
        self._empty = first = self._empty or buffer.position
        midway = first.buffer >= self._ranks  # not the first buffer of this rank in its epoch
        if buffer.next.epoch - first.epoch - midway >= self._ranks:
            raise InputError(
                f"no pair of the {len(self._shards)} shards is kept "
                f"({dict(buffer.dropped)}); give other text, or raise data.max_length"
            )

    def _wanted(self, ordinal: int) -> Wanted:
        partition = self._own()
        if ordinal < len(self._known):
            return self._known[ordinal].position, 0, 1
        if ordinal < len(partition.pending):
            return partition.pending[ordinal].position, 0, 1
        after = partition.next if ordinal == len(partition.pending) else self._known[-1].next
        return after, self._rank, self._ranks

    def _filled(self, wanted: Wanted) -> Buffer:
        if not self._data.workers:
            return self._reader.fill(*wanted)
        if self._coming is None or self._coming[0] != wanted:
            self._submit(wanted)
        assert self._coming is not None
        try:
            return self._coming[1].result()
        except BrokenProcessPool as error:
            raise InputError(
                "the process that reads the stream was killed, perhaps for lack of memory; set "
                "data.buffer lower"
            ) from error

    def _submit(self, wanted: Wanted) -> None:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, initializer=_begin, initargs=(self._reader,))
        self._coming = wanted, self._pool.submit(_fill, wanted)

    def _key(self, index: int) -> StreamedKey:
        pairs, position = self._batches[index], self._known[self._open].position
        content = self._buffer.corpus.select(pairs)
        return StreamedKey(position.epoch, self._buffer.numbers[pairs], content=content)


_reader: BufferReader


def _begin(reader: BufferReader) -> None:
    global _reader
    _reader = reader
    begin_pool_process()


def _fill(wanted: Wanted) -> Buffer:
    return _reader.fill(*wanted)
