"""Fills buffers with the encoded pairs of shards, from any position of an endless stream.

An epoch reads every shard once, in an order drawn for it, from its first pair to its last; a
buffer ends where an epoch does. Does not know batches.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from jaxtyping import Int

from transformer.data.encoded.arrow_writer import encoded, joined
from transformer.data.encoded.sampling_dataset import draw, planned_lengths
from transformer.data.streaming.shards import Place, Shard
from transformer.data.text.filters import Filters, Selection, first_occurrences
from transformer.data.text.parallel import Pair
from transformer.data.tokenization.tokenizer import Tokenizer

# Pairs encoded at once.
_CHUNK = 16_384
# A pair is numbered by its shard and its row in it.
_SHARD_BITS = 40
# Pairs whose segmentations are drawn to see how long they are.
_PROBE = 1_000


@dataclass(frozen=True)
class Position:
    """Where a buffer begins."""

    epoch: int = 0
    buffer: int = 0
    """Which buffer of the epoch it is."""
    shard: int = 0
    """Which shard of the epoch's order it begins in."""
    place: Place = field(default_factory=Place)
    """Where in that shard."""


@dataclass(frozen=True)
class Buffer:
    """Encoded pairs, as arrays that travel quickly between processes."""

    numbers: Int[np.ndarray, " pair"]
    """Names each pair, in every epoch alike."""
    subwords: dict[str, tuple[np.ndarray, np.ndarray]]
    """The pieces of "source" and "target": all of them, and where each pair's begin and end."""
    lengths: dict[str, Int[np.ndarray, " pair"]]
    """What batches are planned with."""
    texts: dict[str, list[str]] | None
    """The text of both sides, where segmentations are drawn from it."""
    read: int
    """Pairs it was filled from."""
    dropped: Counter[str]
    """Those left out, by reason."""
    next: Position
    """Where the next one begins."""

    def rows(self, side: str, pairs: Int[np.ndarray, " batch"]) -> list[np.ndarray]:
        """Return the pieces of some pairs on a side, without bos or eos."""
        values, bounds = self.subwords[side]
        return [values[bounds[pair] : bounds[pair + 1]] for pair in pairs.tolist()]


@dataclass(frozen=True)
class StreamConfig:
    """What decides which pairs come, in which order."""

    shards: Sequence[Shard]
    filters: Filters
    """Duplicates are left out within a buffer."""
    size: int
    """Pairs that a buffer is filled from."""
    seed: int
    batch_tokens: int


class BufferReader:
    """Fills one buffer after another; goes on reading where the last one ended."""

    def __init__(self, config: StreamConfig, tokenizer: Tokenizer) -> None:
        """Prepare to read; no shard is opened yet."""
        self._config, self._tokenizer = config, tokenizer
        self._at: Position | None = None
        self._pairs: Iterator[tuple[int, Pair, Position]] = iter(())

    def fill(self, position: Position) -> Buffer:
        """Return the buffer that begins at a position.

        Raises:
            InputError: a shard is missing, damaged or malformed.
        """
        if position != self._at:
            self._pairs = self._epoch(position)
        read = list(islice(self._pairs, self._config.size))
        after = read[-1][2] if len(read) == self._config.size else None
        if after is None:
            self._at = Position(position.epoch + 1)
            self._pairs = self._epoch(self._at)
        else:
            self._at = replace(after, epoch=position.epoch, buffer=position.buffer + 1)
        return self._encoded([(number, pair) for number, pair, _ in read], self._at)

    def _epoch(self, position: Position) -> Iterator[tuple[int, Pair, Position]]:
        """Yield the pairs of an epoch from a position on: number, texts, the position behind."""
        shards = self._config.shards
        # A fourth number, so that it is no random order of batches either.
        random = np.random.default_rng([self._config.seed, position.epoch, 3])
        order = random.permutation(len(shards)).tolist()
        place = position.place
        for turn in range(position.shard, len(order)):
            for pair, behind in shards[order[turn]].pairs(place):
                number = (order[turn] << _SHARD_BITS) + behind.row - 1
                yield number, pair, Position(shard=turn, place=behind)
            place = Place()

    def _encoded(self, numbered: list[tuple[int, Pair]], behind: Position) -> Buffer:
        pairs = [pair for _, pair in numbered]
        first = first_occurrences(pairs) if self._config.filters.deduplicate else None
        selection = Selection(self._config.filters, first)
        rows = [
            (start + place, source, target)
            for start in range(0, len(pairs), _CHUNK)
            for place, source, target in encoded(
                pairs[start : start + _CHUNK], self._tokenizer, selection
            )
        ]
        subwords = {
            "source": joined([row[1] for row in rows]),
            "target": joined([r[2] for r in rows]),
        }
        texts = None
        if self._tokenizer.config.sampling > 0:
            texts = {side: [pairs[row[0]][i] for row in rows] for i, side in enumerate(subwords)}
        numbers = np.array([numbered[place][0] for place, *_ in rows], dtype=np.int64)
        lengths = {side: np.diff(bounds) for side, (_, bounds) in subwords.items()}
        if texts is not None and rows:
            lengths = {s: self._planned(s, lengths[s], texts[s], numbers) for s in subwords}
        return Buffer(numbers, subwords, lengths, texts, selection.read, selection.dropped, behind)

    def _planned(
        self, side: str, best: np.ndarray, texts: list[str], numbers: np.ndarray
    ) -> Int[np.ndarray, " pair"]:
        config = self._config
        probe = (config.seed, 0, numbers[:_PROBE])
        drawn = draw(self._tokenizer, side, texts[:_PROBE], probe)
        return planned_lengths(best, drawn, config.batch_tokens)
