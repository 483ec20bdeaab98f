"""Batches of segmentations sampled in each epoch (Kudo 2018, section 3).

Knows the encoded corpus and the tokenizer; does not know the order of batches.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from transformer.data.batching.batch import Batch, Row
from transformer.data.batching.sampler import BatchKey
from transformer.data.config import DataConfig
from transformer.data.encoded.dataset import BatchDataset, EncodedCorpus
from transformer.data.tokenization.tokenizer import Tokenizer


class SamplingDataset(BatchDataset):
    """Samples a segmentation of each sentence in each epoch.

    It is a function of (seed, epoch, pair), whatever the worker or rank. If it is so long that its
    batch would exceed the budget, the best segmentation of the sentence replaces it.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokenizer: Tokenizer,
        data: DataConfig,
        linked: bool = False,
    ) -> None:
        """Serve a whole corpus; ``linked`` batches have its word links."""
        pairs = np.arange(len(corpus), dtype=np.int32)
        super().__init__(corpus, pairs, tokenizer if linked else None)
        self._tokenizer, self._data = tokenizer, data

    def __getitem__(self, key: BatchKey) -> Batch:
        sides: list[list[Row]] = []
        for side in ("source", "target"):
            best = self._corpus.ids(side, key.pairs)
            drawn = self._drawn(side, key.pairs, key.epoch)
            sides.append(fitting(drawn, best, self._data))
        return self._batch(key.pairs, *sides)

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return lengths that 95% of the sampled segmentations do not exceed."""
        return self._planned("source"), self._planned("target")

    def _planned(self, side: str) -> Int[np.ndarray, " pair"]:
        probe = np.arange(min(len(self._corpus), 1_000))
        drawn = self._drawn(side, probe, epoch=0)
        return planned_lengths(self._corpus.lengths(side), drawn, self._data.batch_tokens)

    def _drawn(self, side: str, pairs: Int[np.ndarray, " batch"], epoch: int) -> list[list[int]]:
        texts = self._corpus.texts(side, pairs)
        return draw(self._tokenizer, side, texts, (self._data.seed, epoch, pairs))


def draw(
    tokenizer: Tokenizer, side: str, texts: Sequence[str], drawn_for: tuple[int, int, np.ndarray]
) -> list[list[int]]:
    """Sample a segmentation of each text of a side, for (seed, epoch, number of each pair)."""
    seeds = _seeds(*drawn_for, side == "target")
    drawn: list[list[int]] = getattr(tokenizer, f"sample_{side}")(texts, seeds)
    return drawn


def fitting(drawn: Sequence[Row], best: Sequence[Row], data: DataConfig) -> list[Row]:
    """Return the sampled segmentations of a batch, or the best where these are too long."""
    room = min(data.batch_tokens // len(best) - 1, data.max_length)
    return [d if len(d) <= room else b for d, b in zip(drawn, best, strict=True)]


def planned_lengths(
    best: Int[np.ndarray, " pair"], drawn: Sequence[Row], batch_tokens: int
) -> Int[np.ndarray, " pair"]:
    """Return lengths that 95% of sampled segmentations do not exceed.

    The best segmentations have the lengths ``best``; ``drawn`` are sampled ones of the first pairs.
    No length exceeds the budget ``batch_tokens``.
    """
    if not len(best):
        return best
    longer = np.array([len(ids) for ids in drawn]) / best[: len(drawn)]
    planned = np.ceil(best * float(np.quantile(longer, 0.95)))
    return np.maximum(best, np.minimum(planned, batch_tokens - 1)).astype(np.int32)


def _seeds(seed: int, epoch: int, pairs: Int[np.ndarray, " batch"], target: bool) -> list[int]:
    """Mix the four numbers into 32 bits a pair, with the finaliser of SplitMix64."""
    mixed = np.full(len(pairs), seed, dtype=np.uint64)
    for number in (np.uint64(epoch), pairs.astype(np.uint64), np.uint64(target)):
        mixed = (mixed ^ number) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    seeds: list[int] = (mixed >> np.uint64(32)).tolist()
    return seeds
