"""Training data of translation as a stream: shards, vocabulary, batches.

Validation and test text are ordinary files. Does not know models.
"""

import logging
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from transformer.common.cache import locked
from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch, collate
from transformer.data.batching.keyed_dataset import KeyedDataset
from transformer.data.config import DataConfig
from transformer.data.corpora.mixture import config_tags
from transformer.data.encoded.sampling_dataset import draw, fitting
from transformer.data.modules.translation import DataModule
from transformer.data.streaming.shards import Shard, ShardPosition, find_shards, shards_fingerprint
from transformer.data.streaming.shuffle_buffer import BufferReader, Position, StreamConfig
from transformer.data.streaming.streamed_batches import StreamedBatches, StreamedKey
from transformer.data.text.filters import Filters
from transformer.data.text.parallel import Pair
from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig

logger = logging.getLogger(__name__)


class StreamDataset(KeyedDataset[Batch]):
    """Makes a batch of the pairs in a key, with segmentations sampled for its epoch."""

    def __init__(self, data: DataConfig, tokenizer: Tokenizer) -> None:
        """Sample with the tokenizer, within the bounds of the batches."""
        self._data = data
        self._state = tokenizer.to_state()
        self._tokenizer: Tokenizer | None = tokenizer

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the SentencePiece processors."""
        return self.__dict__ | {"_tokenizer": None}

    def __getitem__(self, key: StreamedKey) -> Batch:  # type: ignore[override]
        assert key.rows is not None
        if key.texts is None:
            return collate(key.rows["source"], key.rows["target"])
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.from_state(self._state)
        data, sides = self._data, {}
        for side, best in key.rows.items():
            drawn_for = (data.seed, key.epoch, key.pairs)
            drawn = draw(self._tokenizer, side, key.texts[side], drawn_for)
            sides[side] = fitting(drawn, best, data.batch_tokens, data.max_length)
        return collate(sides["source"], sides["target"])


class StreamData(DataModule):
    """Batches of shards that are read again in each epoch."""

    def __init__(
        self,
        data: DataConfig,
        tokenizer: TokenizerConfig,
        *,
        initial_tokenizer: Tokenizer | None = None,
        links: bool = False,
    ) -> None:
        """Store the config as `DataModule` does; nothing is read yet.

        Raises:
            InputError: the corpus is not given as files, or word links are needed.
        """
        if data.corpus != "files":
            raise InputError(
                f"data.streaming=true reads files, not data.corpus={data.corpus}; set data=files "
                "data.train=[SHARDS] data.validation=[SOURCE,TARGET], or data.streaming=false"
            )
        if links or data.alignment is not None:
            raise InputError(
                "a stream has no word alignment; leave data.alignment out and set "
                "loss.alignment_weight=0, or data.streaming=false"
            )
        super().__init__(data, tokenizer, initial_tokenizer=initial_tokenizer)

    @cached_property
    def _shards(self) -> list[Shard]:
        data = self._data
        return find_shards(data.train, (data.source, data.target), data.max_line)

    @cached_property
    def _fingerprint(self) -> str:
        return shards_fingerprint(self._shards)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer: given, from the cache, or learnt from the beginning of the stream.

        Raises:
            InputError: the text cannot be read, or is unsuitable for the vocabulary size.
        """
        config = self._tokenizer_config
        if self._initial_tokenizer is not None:
            config_tags(self._data).check_same_tags(self._initial_tokenizer.tags)
            return self._initial_tokenizer.with_sampling(config.sampling)
        with locked(self._cache):
            return Tokenizer.train(
                config,
                lambda: islice(self._pairs_in_order(), config.max_sentences),
                self._cache,
                f"stream {self._fingerprint}",
                self._shards[0].urls[0],
            )

    def prepare_data(self) -> None:
        """Learn the vocabulary and encode the validation text, unless in the cache.

        Raises:
            InputError: text cannot be read, or is unsuitable for the vocabulary size.
        """
        for split in self.splits:
            self.texts(split)
        _ = self._fingerprint, self.tokenizer
        self._encoded_path("validation")

    def training_targets(self, limit: int) -> list[list[int]]:
        """Return the target subwords of the first ``limit`` training pairs of the stream."""
        buffer = BufferReader(self._stream, self.tokenizer).fill(Position())
        first = np.arange(min(limit, len(buffer.numbers)))
        return [subwords.tolist() for subwords in buffer.rows("target", first)]

    @cached_property
    def row(self) -> StreamedBatches:
        """All batches of training, without an end."""
        return StreamedBatches(
            self._stream, self.tokenizer, identity=self._fingerprint, ahead=self._data.workers > 0
        )

    def teardown(self, stage: str) -> None:
        """End the worker processes; Lightning calls this after a run."""
        super().teardown(stage)
        if "row" in self.__dict__:
            self.row.close()

    @property
    def _stream(self) -> StreamConfig:
        data = self._data
        longest = min(data.max_length, data.batch_tokens - 1)
        filters = Filters(longest, data.max_ratio, data.deduplicate)
        return StreamConfig(self._shards, filters, data.buffer, data.seed, data.batch_tokens)

    def _pairs_in_order(self) -> Iterator[Pair]:
        for shard in self._shards:
            for pair, _ in shard.pairs(ShardPosition()):
                yield pair

    @cached_property
    def _training(self) -> StreamDataset:
        return StreamDataset(self._data, self.tokenizer)
