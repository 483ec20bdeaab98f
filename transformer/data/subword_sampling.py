"""Batches of segmentations drawn anew in each epoch (Kudo 2018, section 3).

Knows the encoded corpus and the tokenizer; does not know the order of batches.
"""

from typing import Any

import numpy as np
from jaxtyping import Int

from transformer.data.batch import Batch, Row
from transformer.data.dataset import BatchDataset, EncodedCorpus
from transformer.data.sampler import BatchKey
from transformer.data.tokenizer import Tokenizer


class SamplingDataset(BatchDataset):
    """Draws the segmentation of each sentence anew in each epoch (Kudo 2018, section 3).

    A drawn segmentation is a function of (seed, epoch, pair), whichever worker or rank asks. One
    so long that its batch would exceed the budget gives way to the sentence's best segmentation.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokenizer: Tokenizer,
        *,
        seed: int,
        batch_tokens: int,
        max_length: int,
        linked: bool = False,
    ) -> None:
        """Serve a whole corpus; ``batch_tokens`` and ``max_length`` bound what is drawn.

        ``linked`` batches carry the word links of the corpus.
        """
        super().__init__(corpus, np.arange(len(corpus)), tokenizer if linked else None)
        self._state, self._tags = tokenizer.to_state(), tokenizer.source_tags
        self._tokenizer: Tokenizer | None = tokenizer
        self._seed, self._batch_tokens, self._max_length = seed, batch_tokens, max_length

    def __getstate__(self) -> dict[str, Any]:
        """Travel to a spawned worker without the SentencePiece processors."""
        return self.__dict__ | {"_tokenizer": None}

    def __getitem__(self, key: BatchKey) -> Batch:
        room = min(self._batch_tokens // len(key.pairs) - 1, self._max_length)
        sides: list[list[Row]] = []
        for side in ("source", "target"):
            best = self._corpus.ids(side, key.pairs)
            drawn = self._drawn(side, key.pairs, key.epoch)
            sides.append([d if len(d) <= room else b for d, b in zip(drawn, best, strict=True)])
        return self._batch(key.pairs, *sides)

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return lengths that 95% of the drawn segmentations keep to.

        How much longer they are than the best ones is measured on the first pairs.
        """
        probe = np.arange(min(len(self._corpus), 1_000))
        planned = []
        for side in ("source", "target"):
            best = self._corpus.lengths(side)
            drawn = np.array([len(ids) for ids in self._drawn(side, probe, epoch=0)])
            longer = np.ceil(best * float(np.quantile(drawn / best[probe], 0.95)))
            planned.append(np.maximum(best, np.minimum(longer, self._batch_tokens - 1)))
        source, target = (lengths.astype(np.int64) for lengths in planned)
        return source, target

    def _drawn(self, side: str, pairs: Int[np.ndarray, " batch"], epoch: int) -> list[list[int]]:
        if self._tokenizer is None:
            self._tokenizer = Tokenizer.from_state(self._state).tagged(self._tags)
        sample = getattr(self._tokenizer, f"sample_{side}")
        seeds = _seeds(self._seed, epoch, pairs, side == "target")
        drawn: list[list[int]] = sample(self._corpus.texts(side, pairs), seeds)
        return drawn


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
