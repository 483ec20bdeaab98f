"""Reads and encodes the pairs of a stream in buffers; it does not plan batches."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from jaxtyping import Int

from transformer.data.batching.batch_sequence import Lengths
from transformer.data.binarized.corpus import EncodedCorpus
from transformer.data.binarized.dataset import SegmentationSampler
from transformer.data.binarized.pair_seeds import DISTURBANCE, pair_seeds
from transformer.data.binarized.preprocess import encode
from transformer.data.streaming.shards import Position, Shard, read_epoch
from transformer.data.text.parallel import Pair
from transformer.data.text.training_filters import Filters, first_occurrences
from transformer.data.text_noise.augmentation import UNCHANGED, Linked, disturbed, drawn_kinds
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.augmentation import AugmentationConfig
from transformer.settings.data import DataConfig


@dataclass(frozen=True)
class Buffer:
    """The kept pairs of a buffer, encoded."""

    numbers: Int[np.ndarray, " pair"]
    """Number of each pair, the same in every epoch."""
    corpus: EncodedCorpus
    """In memory, with texts for subword sampling."""
    lengths: Lengths
    read: int
    dropped: Counter[str]
    next: Position


class BufferReader:
    """Fills buffers; continues reading if a buffer follows the last one."""

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
        self._pairs: Iterator[tuple[int, Pair, Position]]

    def fill(self, position: Position) -> Buffer:
        """Return the buffer that begins at a position; raises InputError as `Shard.pairs`."""
        if position != self._at:
            self._pairs = read_epoch(self.shards, self.data.seed, position)
        read = list(islice(self._pairs, self.data.buffer))
        after = read[-1][2] if len(read) == self.data.buffer else None
        if after is None:
            self._at = Position(position.epoch + 1)
            self._pairs = read_epoch(self.shards, self.data.seed, self._at)
        else:
            self._at = replace(after, epoch=position.epoch, buffer=position.buffer + 1)
        pairs = [pair for _, pair, _ in read]
        first = first_occurrences(pairs) if self.filters.deduplicate else None
        numbers = np.array([number for number, _, _ in read], dtype=np.int64)
        if self.augmentation.active:
            self._augment(pairs, position.epoch, numbers)
        texts = self.tokenizer.config.sampling > 0
        batch, kept, dropped = encode(pairs, self.tokenizer, self.filters, first, texts=texts)
        corpus = EncodedCorpus(batch)
        numbers = numbers[kept]
        lengths = self._sampler.lengths(corpus, numbers)
        return Buffer(numbers, corpus, lengths, len(pairs), dropped, self._at)

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
