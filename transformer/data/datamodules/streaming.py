"""Training data of translation as a stream; validation and test text are ordinary files."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

import numpy as np
from torch.utils.data import Dataset

from transformer.data.batching.batch import Batch, collate
from transformer.data.binarized.dataset import SegmentationSampler
from transformer.data.datamodules.translation import TranslationData
from transformer.data.streaming.buffers import BufferReader
from transformer.data.streaming.shards import Shard, find_shards, shards_fingerprint
from transformer.data.streaming.streamed_batches import StreamedBatches, StreamedKey
from transformer.data.text.parallel import Pair
from transformer.data.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class StreamDataset(Dataset[Batch]):
    """Makes a batch of the pairs in a key, with segmentations sampled for its epoch."""

    sampler: SegmentationSampler

    def __getitem__(self, key: StreamedKey) -> Batch:
        pairs = np.arange(len(key.pairs))
        return collate(*self.sampler.ids(key.content, pairs, key.epoch, key.pairs)[:2])


class StreamedData(TranslationData):
    """Batches of shards that are read again in each epoch."""

    @cached_property
    def _shards(self) -> list[Shard]:
        sides, features = (self._data.source, self._data.target), self._data.features is not None
        return find_shards(self._data.train, sides, self._data.max_line, features)

    @cached_property
    def _fingerprint(self) -> str:
        return shards_fingerprint(self._shards)

    def training_sample(self, limit: int) -> list[Pair]:
        return list(self._beginning(limit))

    def _beginning(self, limit: int) -> Iterator[Pair]:
        return islice(chain.from_iterable(shard.pairs() for shard in self._shards), limit)

    def _learned_tokenizer(self) -> Tokenizer:
        config, shards = self._tokenizer_config, self._shards

        def pairs() -> Iterator[Pair]:
            return self._beginning(config.max_sentences)

        name, content = shards[0].urls[0], f"stream {self._fingerprint}"
        return Tokenizer.train(config, pairs, self._cache, content, name)

    def prepare_data(self) -> None:
        for split in self.splits:
            self.texts(split)
        _ = self._fingerprint, self.tokenizer
        self._encoded_path("validation")

    @cached_property
    def row(self) -> StreamedBatches:
        reader = BufferReader(self._shards, self._data, self.tokenizer, self._augmentation)
        return StreamedBatches(reader, self._fingerprint)

    def teardown(self, stage: str) -> None:
        super().teardown(stage)
        if "row" in self.__dict__:
            self.row.close()

    @cached_property
    def _training(self) -> StreamDataset:
        return StreamDataset(SegmentationSampler(self.tokenizer, self._data))
