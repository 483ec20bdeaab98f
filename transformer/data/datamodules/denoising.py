"""The target side of a corpus, with noise; the batches are pairs."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from transformer.data.batching.batch import Row
from transformer.data.batching.token_batches import BatchKey
from transformer.data.binarized.corpus import EncodedCorpus
from transformer.data.binarized.dataset import SegmentationSampler
from transformer.data.binarized.denoising import DenoisingDataset, Noise
from transformer.data.datamodules.language_modeling import MonolingualData


class DenoisingData(MonolingualData):
    """Batches of texts with new noise in each epoch; validation and test have that of epoch 0."""

    @cached_property
    def _training(self) -> DenoisingDataset:
        return self._noisy("train")

    @cached_property
    def _validation(self) -> DenoisingDataset:
        return self._noisy("validation")

    def noisy(self, split: str) -> Sequence[tuple[Row, Row]]:
        """Return source and target of the texts of a split, which are not empty or too long."""
        dataset = self._noisy(split)
        return dataset.rows(BatchKey(0, np.arange(len(dataset.lengths()[0]))))

    def _noisy(self, split: str) -> DenoisingDataset:
        corpus, tokenizer = EncodedCorpus(self._encoded_path(split)), self.tokenizer
        if split != "train":
            tokenizer = tokenizer.with_sampling(0.0)
        noise = Noise.from_tokenizer(self._data.denoising, tokenizer)
        lengths, where = corpus.sides_lengths(), self._split(split).location
        pairs = np.arange(len(corpus), dtype=np.int32)
        if split != "train":
            pairs = self._usable(split, where, "texts", lengths)
        return DenoisingDataset(corpus, pairs, SegmentationSampler(tokenizer, self._data), noise)
