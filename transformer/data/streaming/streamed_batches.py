"""The endless sequence of batches of a stream, planned and shuffled buffer by buffer."""

import logging
from bisect import bisect_right
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from transformer.common.errors import InputError
from transformer.common.processes import begin_pool_process
from transformer.data.batching.batch_sequence import BatchSequence
from transformer.data.batching.token_batches import BatchKey, BatchPlan, EpochBatches
from transformer.data.binarized.corpus import EncodedCorpus
from transformer.data.streaming.buffers import Buffer, BufferReader
from transformer.data.streaming.shards import Position, ShardPosition
from transformer.data.text.training_filters import log_level

logger = logging.getLogger(__name__)

_NONE = EpochBatches(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))


@dataclass(frozen=True)
class StreamedKey(BatchKey):
    """Key of a batch of a stream, with its content: other processes do not have the pairs."""

    content: EncodedCorpus = field(kw_only=True)


class StreamedBatches(BatchSequence):
    """Batches by number, which is fast in ascending order."""

    def __init__(self, reader: BufferReader, identity: str) -> None:
        self._reader, self._identity = reader, identity
        self._shards, self._data = reader.shards, reader.data
        # With workers, another process fills the next buffer.
        self._pool: ProcessPoolExecutor | None = None
        self._coming: tuple[Position, Future[Buffer]] | None = None
        # Number of the first batch, and position, of each known buffer.
        self._starts: list[tuple[int, Position]] = [(0, Position())]
        # The open buffer; -1: none.
        self._index = -1
        self._buffer: Buffer
        self._plan: BatchPlan
        self._batches = _NONE
        self._read, self._dropped, self._warned = 0, Counter[str](), False

    def __getitem__(self, number: int) -> BatchKey:
        """Return a batch; all buffers up to it are read; InputError if none has a usable pair."""
        self._find(number)
        return self._key(number - self._starts[self._index][0])

    def largest(self) -> tuple[int, BatchKey]:
        """Return the positions of the largest batch of the open or the first buffer, and it."""
        if self._index < 0 or not len(self._batches):
            self._find(0)
        sizes = self._plan.positions(self._batches)
        index = int(sizes.argmax())
        return int(sizes[index]), self._key(index)

    @property
    def epoch_length(self) -> None:
        return None

    def epochs(self, number: int) -> float:
        """Return the number of epochs, in whole shards, before the buffer of a batch."""
        _, position = self._starts[self._known(number)]
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

    def state_dict(self, number: int) -> dict[str, Any]:
        """Return the position of the buffer of a batch, which has been read."""
        first, position = self._starts[self._known(number)]
        at = {"first": first, "position": asdict(position)}
        return at | {"shards": self._identity, "seed": self._data.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a buffer; with other shards or seed, from the start of its epoch."""
        position = Position(state["position"]["epoch"])
        if (state["shards"], state["seed"]) == (self._identity, self._data.seed):
            place = state["position"]["place"]
            place = ShardPosition(place["row"], tuple(place["offsets"]))
            position = Position(**(state["position"] | {"place": place}))
        self._starts = [(state["first"], position)]
        self._index = -1

    def close(self) -> None:
        """End the process that reads ahead; the next buffer starts another."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = self._coming = None

    def _known(self, number: int) -> int:
        return bisect_right(self._starts, number, key=lambda start: start[0]) - 1

    def _find(self, number: int) -> None:
        if number < self._starts[0][0]:
            logger.info("reading the stream from its beginning, to find batch %s", f"{number:,}")
            self._starts.insert(0, (0, Position()))
            self._index = -1
        while True:
            index = self._known(number)
            if index != self._index:
                self._open(index)
            first, position = self._starts[index]
            end, after = first + len(self._batches), self._buffer.next
            if number < end:
                return
            # All buffers of this epoch begin at the same batch: none has kept a pair.
            if after.epoch > position.epoch and (end, Position(position.epoch)) in self._starts:
                raise InputError(
                    f"no pair of the {len(self._shards)} shards is kept "
                    f"({dict(self._buffer.dropped)}); give other text, or raise data.max_length"
                )
            self._starts.insert(index + 1, (end, after))

    def _open(self, index: int) -> None:
        _, position = self._starts[index]
        self._buffer = buffer = self._filled(position)
        self._index, self._batches = index, _NONE
        self._read += buffer.read
        self._dropped += buffer.dropped
        if not self._warned and log_level(self._dropped.total(), self._read) == logging.WARNING:
            self._reader.filters.report("train, so far", self._dropped, self._read)
            self._warned = True
        if self._data.workers:
            self._submit(buffer.next)
        if len(buffer.numbers):
            data = self._data
            self._plan = BatchPlan(*buffer.lengths, batch_tokens=data.budget, seed=data.seed)
            self._batches = self._plan.epoch(position.epoch << 32 | position.buffer)

    def _filled(self, position: Position) -> Buffer:
        if not self._data.workers:
            return self._reader.fill(position)
        if self._coming is None or self._coming[0] != position:
            self._submit(position)
        assert self._coming is not None
        try:
            return self._coming[1].result()
        except BrokenProcessPool as error:
            raise InputError(
                "the process that reads the stream was killed, perhaps for lack of memory; set "
                "data.buffer lower"
            ) from error

    def _submit(self, position: Position) -> None:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, initializer=_begin, initargs=(self._reader,))
        self._coming = position, self._pool.submit(_fill, position)

    def _key(self, index: int) -> StreamedKey:
        pairs, (_, position) = self._batches[index], self._starts[self._index]
        content = self._buffer.corpus.select(pairs)
        return StreamedKey(position.epoch, self._buffer.numbers[pairs], content=content)


_reader: BufferReader


def _begin(reader: BufferReader) -> None:
    global _reader
    _reader = reader
    begin_pool_process()


def _fill(position: Position) -> Buffer:
    return _reader.fill(position)
