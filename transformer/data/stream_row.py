"""The endless row of batches of a stream: block after block is shuffled and cut into batches.

A buffer of pairs is planned as a corpus is (sampler.py), and its batches are handed out; then
comes the next. Which batch has which number depends on what was read, but neither on ranks nor on
where a run was stopped. Does not know shards or texts.
"""

import logging
import signal
from bisect import bisect_right
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from transformer.data.buffers import Buffer, BufferReader, Position, StreamConfig
from transformer.data.sampler import BatchKey, BatchPlan
from transformer.data.shards import Place
from transformer.data.tokenizer import Tokenizer
from transformer.errors import InputError
from transformer.processes import end_with_parent

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamedKey(BatchKey):
    """Names a batch of a stream, and carries it: no one else can look its pairs up."""

    rows: dict[str, list[np.ndarray]] | None = None
    """Pieces of "source" and "target" of each pair, without bos or eos."""
    texts: dict[str, list[str]] | None = None
    """Texts of both sides, where segmentations are drawn."""


class StreamRow:
    """Batches by their number, quickly where one buffer is used up before the next is asked for."""

    def __init__(
        self, config: StreamConfig, tokenizer: Tokenizer, *, identity: str, ahead: bool
    ) -> None:
        """Follow a stream from its beginning; `load_state_dict` goes elsewhere.

        Args:
            config: what is read.
            tokenizer: cuts both sides.
            identity: a hash of the shards.
            ahead: let another process fill the next buffer meanwhile.
        """
        self._config, self._tokenizer = config, tokenizer
        self._shards, self._ahead = identity, ahead
        self._reader = BufferReader(config, tokenizer)
        self._pool: ProcessPoolExecutor | None = None
        self._coming: tuple[Position, Future[Buffer]] | None = None
        # Number of the first batch, and position, of each buffer that is known.
        self._starts: list[tuple[int, Position]] = [(0, Position())]
        self._place = -1
        self._buffer: Buffer | None = None
        self._read, self._dropped, self._warned = 0, Counter[str](), False
        self._plan: list[np.ndarray] = []

    def __getitem__(self, number: int) -> BatchKey:
        """Return a batch; far ahead of those before, all that lies between is read.

        Raises:
            InputError: a shard is missing, damaged or malformed, or no pair of an epoch is kept.
        """
        buffer = self._containing(number)
        first, position = self._starts[self._place]
        return self._key(buffer, position, self._plan[number - first])

    def largest(self) -> tuple[int, BatchKey]:
        """Return the batch with the most positions, and how many, of a buffer that is at hand.

        That is the one that was filled last, and else the first.
        """
        buffer = self._buffer if self._plan and self._buffer else self._containing(0)
        sides = buffer.lengths["source"], buffer.lengths["target"]
        sizes = [
            len(pairs) * sum(int(side[pairs].max()) + 1 for side in sides) for pairs in self._plan
        ]
        index = int(np.argmax(sizes))
        return sizes[index], self._key(buffer, self._starts[self._place][1], self._plan[index])

    @property
    def epoch_length(self) -> None:
        """Not known before an epoch is over."""
        return None

    def epochs(self, number: int) -> float:
        """Return how many epochs are read where the buffer of a batch begins, to whole shards."""
        _, position = self._starts[self._known(number)]
        return position.epoch + position.shard / len(self._config.shards)

    def identity(self) -> dict[str, Any]:
        """Return what two rows have in common if and only if they give the same batches."""
        config = self._config
        return {
            "shards": self._shards,
            "filters": str(config.filters),
            "buffer": config.size,
            "batch_tokens": config.batch_tokens,
            "seed": config.seed,
            "tokenizer": self._tokenizer.fingerprint,
            "sampling": self._tokenizer.config.sampling,
        }

    def state_dict(self, number: int) -> dict[str, Any]:
        """Return where the buffer begins that holds a batch, of those that were asked for."""
        first, position = self._starts[self._known(number)]
        return {
            "first": first,
            "position": asdict(position),
            "shards": self._shards,
            "seed": self._config.seed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Know where a buffer begins: a batch in it, or after it, costs nothing of those before.

        In other shards, or with another order of them, that is the start of the same epoch.
        """
        position = Position(state["position"]["epoch"])
        # Checkpoints of before do not say the seed.
        seed = state.get("seed", self._config.seed)
        if (state["shards"], seed) == (self._shards, self._config.seed):
            place = state["position"]["place"]
            place = Place(place["row"], tuple(place["offsets"]))
            position = Position(**(state["position"] | {"place": place}))
        self._starts = [(state["first"], position)]
        self._place, self._buffer = -1, None

    def close(self) -> None:
        """End the process that reads ahead; the next batch starts another."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = self._coming = None

    def _known(self, number: int) -> int:
        return bisect_right(self._starts, number, key=lambda start: start[0]) - 1

    def _containing(self, number: int) -> Buffer:
        if self._known(number) < 0:
            logger.info("reading the stream from its beginning, to find batch %s", f"{number:,}")
            self._starts.insert(0, (0, Position()))
            self._place += 1
        while True:
            place = self._known(number)
            if place != self._place or self._buffer is None:
                self._open(place)
            assert self._buffer is not None
            first, position = self._starts[place]
            end = first + len(self._plan)
            if number < end:
                return self._buffer
            self._refuse_empty_epoch(position, end)
            self._starts.insert(place + 1, (end, self._buffer.next))

    def _open(self, place: int) -> None:
        """Fill a buffer, or take it where that is done, and lay its batches out."""
        _, position = self._starts[place]
        self._buffer = buffer = self._filled(position)
        self._place, self._plan = place, []
        self._read, self._dropped = self._read + buffer.read, self._dropped + buffer.dropped
        # A stream has no whole: it warns once, of what it has read so far.
        self._warned = self._warned or self._config.filters.judge(
            "train, so far", self._dropped, self._read
        )
        if self._ahead:
            self._coming = buffer.next, self._submitted(buffer.next)
        if not len(buffer.numbers):
            return
        config = self._config
        sides = buffer.lengths["source"], buffer.lengths["target"]
        plan = BatchPlan(*sides, batch_tokens=config.batch_tokens, seed=config.seed)
        batches = plan.epoch(position.epoch << 32 | position.buffer)
        self._plan = [batches[index] for index in range(len(batches))]

    def _filled(self, position: Position) -> Buffer:
        if not self._ahead:
            return self._reader.fill(position)
        if self._coming is None or self._coming[0] != position:
            self._coming = position, self._submitted(position)
        try:
            return self._coming[1].result()
        except BrokenProcessPool as error:
            raise InputError(
                "the process that reads the stream was killed, perhaps for want of memory; set "
                "data.buffer lower"
            ) from error

    def _submitted(self, position: Position) -> Future[Buffer]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, initializer=_begin, initargs=(self._reader,))
        return self._pool.submit(_fill, position)

    def _refuse_empty_epoch(self, position: Position, end: int) -> None:
        assert self._buffer is not None
        if (
            self._buffer.next.epoch > position.epoch
            and (end, Position(position.epoch)) in self._starts
        ):
            raise InputError(
                f"no pair of the {len(self._config.shards)} shards is kept "
                f"({dict(self._buffer.dropped)}); give other text, or raise data.max_length"
            )

    def _key(self, buffer: Buffer, position: Position, pairs: np.ndarray) -> StreamedKey:
        rows = {side: buffer.rows(side, pairs) for side in buffer.pieces}
        texts = buffer.texts
        if texts is not None:
            texts = {side: [texts[side][pair] for pair in pairs.tolist()] for side in texts}
        return StreamedKey(position.epoch, buffer.numbers[pairs], rows=rows, texts=texts)


_reader: BufferReader


def _begin(reader: BufferReader) -> None:
    global _reader
    _reader = reader
    # Ctrl-C is the parent's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _fill(position: Position) -> Buffer:
    return _reader.fill(position)
