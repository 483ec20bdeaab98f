"""Fills buffers with the encoded pairs of shards, from any position of an endless stream."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from jaxtyping import Int

from transformer.data.batching.batch_stream import Lengths
from transformer.data.config import DataConfig
from transformer.data.encoded.arrow_writer import encode
from transformer.data.encoded.dataset import EncodedCorpus, SegmentationSampler
from transformer.data.streaming.shards import Shard, ShardPosition
from transformer.data.text.parallel import Pair
from transformer.data.text.training_filters import Filters, Selection, first_occurrences
from transformer.data.tokenization.tokenizer import Tokenizer

# The number of a pair has its shard and its row in these bits.
_SHARD_BITS = 40


@dataclass(frozen=True)
class Position:
    """The position where a buffer begins."""

    epoch: int = 0
    buffer: int = 0
    shard: int = 0
    place: ShardPosition = field(default_factory=ShardPosition)


@dataclass(frozen=True)
class Buffer:
    """Encoded pairs."""

    numbers: Int[np.ndarray, " pair"]
    """Number of each pair, the same in every epoch."""
    corpus: EncodedCorpus
    """In memory, with texts for subword sampling."""
    lengths: Lengths
    selection: Selection
    next: Position


class BufferReader:
    """Fills buffers; continues reading if a buffer follows the last one."""

    def __init__(self, shards: Sequence[Shard], data: DataConfig, tokenizer: Tokenizer) -> None:
        """Prepare to read; no shard is opened yet."""
        self._shards, self._data, self._tokenizer = shards, data, tokenizer
        longest = min(data.max_length, data.batch_tokens - 1)
        self.filters = Filters(longest, data.max_ratio, data.deduplicate)
        self._sampler = SegmentationSampler(tokenizer, data)
        self._at: Position | None = None
        self._pairs: Iterator[tuple[int, Pair, Position]] = iter(())

    def fill(self, position: Position) -> Buffer:
        """Return the buffer that begins at a position; raises InputError as `Shard.pairs`."""
        if position != self._at:
            self._pairs = self._epoch(position)
        read = list(islice(self._pairs, self._data.buffer))
        after = read[-1][2] if len(read) == self._data.buffer else None
        if after is None:
            self._at = Position(position.epoch + 1)
            self._pairs = self._epoch(self._at)
        else:
            self._at = replace(after, epoch=position.epoch, buffer=position.buffer + 1)
        pairs = [pair for _, pair, _ in read]
        first = first_occurrences(pairs) if self.filters.deduplicate else None
        selection, sampler = Selection(self.filters, first), self._sampler
        texts = self._tokenizer.config.sampling > 0
        batch, kept = encode(pairs, self._tokenizer, selection, texts=texts)
        corpus = EncodedCorpus(batch)
        numbers = np.array([read[index][0] for index in kept], dtype=np.int64)
        return Buffer(numbers, corpus, sampler.lengths(corpus, numbers), selection, self._at)

    def _epoch(self, position: Position) -> Iterator[tuple[int, Pair, Position]]:
        """Yield the pairs of an epoch from a position on: number, texts, the position after it."""
        shards = self._shards
        # The third number makes it differ from the random orders of batches.
        random = np.random.default_rng([self._data.seed, position.epoch, 3])
        order = random.permutation(len(shards)).tolist()
        start = position.place
        for turn in range(position.shard, len(order)):
            for pair, after in shards[order[turn]].pairs(start):
                number = (order[turn] << _SHARD_BITS) + after.row - 1
                yield number, pair, Position(shard=turn, place=after)
            start = ShardPosition()
