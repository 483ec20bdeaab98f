"""Training pairs of translation as a stream; validation and test text are ordinary files."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset

from transformer.data.batching.batch import Batch, collate
from transformer.data.binarized.dataset import SegmentationSampler
from transformer.data.streaming.buffers import BufferReader
from transformer.data.streaming.shards import Shard, find_shards, shards_fingerprint
from transformer.data.streaming.streamed_batches import StreamedBatches, StreamedKey
from transformer.data.text.parallel import Pair
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.augmentation import AugmentationConfig
from transformer.settings.data import DataConfig
from transformer.settings.tokenizer import TokenizerConfig


@dataclass(frozen=True)
class StreamDataset(Dataset[Batch]):
    """Makes a batch of the pairs in a key, with segmentations sampled for its epoch."""

    sampler: SegmentationSampler

    def __getitem__(self, key: StreamedKey) -> Batch:
        pairs = np.arange(len(key.pairs))
        return collate(*self.sampler.ids(key.content, pairs, key.epoch, key.pairs)[:2])


class TrainingStream:
    """Shards that are read again in each epoch, and never encoded as a whole."""

    def __init__(self, data: DataConfig, augmentation: AugmentationConfig) -> None:
        self._data, self._augmentation = data, augmentation

    @cached_property
    def shards(self) -> list[Shard]:
        """The files; InputError if ``data.train`` names none."""
        sides, features = (self._data.source, self._data.target), self._data.features is not None
        return find_shards(self._data.train, sides, self._data.max_line, features)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, sizes and times of the shards; InputError if one is missing."""
        return shards_fingerprint(self.shards)

    def beginning(self, limit: int) -> Iterator[Pair]:
        """Yield the first pairs."""
        return islice(chain.from_iterable(shard.pairs() for shard in self.shards), limit)

    def learned_tokenizer(self, config: TokenizerConfig, cache: Path) -> Tokenizer:
        """Learn a tokenizer from the first pairs, unless it is in the cache."""

        def pairs() -> Iterator[Pair]:
            return self.beginning(config.max_sentences)

        name, content = self.shards[0].urls[0], f"stream {self.fingerprint}"
        return Tokenizer.train(config, pairs, cache, content, name)

    def batches(self, tokenizer: Tokenizer) -> StreamedBatches:
        """The endless sequence of batches, of which each rank makes its own."""
        reader = BufferReader(self.shards, self._data, tokenizer, self._augmentation)
        return StreamedBatches(reader, self.fingerprint)

    def dataset(self, tokenizer: Tokenizer) -> StreamDataset:
        return StreamDataset(SegmentationSampler(tokenizer, self._data))
