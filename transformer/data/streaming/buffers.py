"""Reads and encodes the pairs of a stream in buffers; it does not plan batches."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from transformer.data.batching.batch_sequence import Lengths
from transformer.data.binarized.corpus import EncodedCorpus
from transformer.data.binarized.dataset import SegmentationSampler
from transformer.data.binarized.pair_seeds import DISTURBANCE, pair_seeds
from transformer.data.binarized.preprocess import encode
from transformer.data.streaming.shards import EpochReader, Position, Shard
from transformer.data.text.parallel import Pair
from transformer.data.text.training_filters import Filters, first_occurrences
from transformer.data.text_noise.augmentation import UNCHANGED, Linked, disturbed, drawn_kinds
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.augmentation import AugmentationConfig
from transformer.settings.data import DataConfig


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
        self.shards, self.data, self.tokenizer = shards, data, tokenizer
        self.augmentation = augmentation
        longest = min(data.max_length, data.budget - 1)
        self.filters = Filters(longest, data.max_ratio, data.deduplicate)
        self._sampler = SegmentationSampler(tokenizer, data)
        self._at: Position | None = None
        self._epoch: EpochReader | None = None

    def fill(self, position: Position, rank: int = 0, ranks: int = 1) -> Buffer:
        """Return the first buffer of a rank from a position on; raises InputError as reading."""
        while position.rank(ranks) != rank:
            position = self.skip(position)
        read = self._epoch_at(position).take(self.data.buffer)
        after = self._moved(position, len(read))
        numbers = np.array([number for number, _ in read], dtype=np.int64)
        pairs = [pair for _, pair in read]
        first = first_occurrences(pairs) if self.filters.deduplicate else None
        if self.augmentation.active:
            self._augment(pairs, position.epoch, numbers)
        texts = self.tokenizer.config.sampling > 0
        batch, kept, dropped = encode(pairs, self.tokenizer, self.filters, first, texts=texts)
        corpus = EncodedCorpus(batch)
        numbers = numbers[kept]
        lengths = self._sampler.lengths(corpus, numbers)
        return Buffer(position, numbers, corpus, lengths, len(pairs), dropped, after)

    def skip(self, position: Position) -> Position:
        """Return the position of the next buffer, without encoding the pairs of this one."""
        return self._moved(position, self._epoch_at(position).skip(self.data.buffer))

    def close(self) -> None:
        """Close the open shard; the next buffer opens it again."""
        if self._epoch is not None:
            self._epoch.close()
        self._at = self._epoch = None

    def _epoch_at(self, position: Position) -> EpochReader:
        if self._epoch is None or position != self._at:
            self.close()
            self._epoch = EpochReader(self.shards, self.data.seed, position)
        return self._epoch

    def _moved(self, position: Position, count: int) -> Position:
        """Return the position after a buffer of so many pairs, where reading continues."""
        assert self._epoch is not None
        if count == self.data.buffer:
            self._at = replace(self._epoch.position, buffer=position.buffer + 1)
        else:
            self._at = Position(position.epoch + 1)
            self._epoch = None
        return self._at

    def _augment(self, pairs: list[Pair], epoch: int, numbers: Int[np.ndarray, " pair"]) -> None:
        """Change some pairs, if they fit; the next pair follows where two are joined."""
        seeds = pair_seeds(self.data.seed, epoch, numbers, DISTURBANCE)
        kinds, changed = drawn_kinds(self.augmentation, seeds), dict[int, Pair]()
        for index in np.flatnonzero(kinds != UNCHANGED).tolist():
            own, other = pairs[index], pairs[(index + 1) % len(pairs)]
            if all(map(str.strip, own)):  # a blank text stays blank
                made = disturbed(int(kinds[index]), int(seeds[index]), Linked(own), Linked(other))
                changed[index] = made.pair
        encoded = self.tokenizer.encode_pairs(list(changed.values()))
        for (index, pair), sides in zip(changed.items(), encoded, strict=True):
            if self.filters.reason(*map(len, sides)) is None:
                pairs[index] = pair
