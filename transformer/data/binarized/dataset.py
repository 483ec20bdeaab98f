"""Batches of an encoded corpus; segmentations are the best, or sampled (Kudo 2018, section 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.batching.batch import Batch, Row, collate
from transformer.data.batching.batch_sequence import EpochLengths, Lengths, PlannedDataset
from transformer.data.batching.token_batches import BatchKey
from transformer.data.binarized.augmented import AugmentedCorpus
from transformer.data.binarized.corpus import EncodedCorpus, Indices
from transformer.data.binarized.pair_seeds import (
    SOURCE_SEGMENTATION,
    TARGET_SEGMENTATION,
    pair_seeds,
)
from transformer.data.binarized.preprocess import SIDES
from transformer.data.text.parallel import Pair
from transformer.data.text.word_alignment import linked_subwords, subword_words
from transformer.data.text_noise.augmentation import Linked
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.augmentation import AugmentationConfig
from transformer.settings.data import DataConfig

Lines = Int[np.ndarray, " pair"]

# Pairs whose segmentations are sampled to estimate the lengths of all.
_PROBE = 1_000


class Segmented(NamedTuple):
    """Subword ids of a batch of pairs."""

    source: list[Row]
    target: list[Row]
    changed: frozenset[int]
    """The rows that are changed; other changed pairs do not fit, and stay as they are."""


@dataclass(frozen=True)
class SegmentationSampler:
    """Samples segmentations by (seed, epoch, number of a pair), or has the best of all."""

    tokenizer: Tokenizer
    data: DataConfig

    def ids(
        self,
        corpus: EncodedCorpus,
        pairs: Indices,
        epoch: int,
        numbers: Indices,
        changed: Mapping[int, Linked] | None = None,
    ) -> Segmented:
        """Return the ids of pairs with these numbers, or of those in ``changed`` that fit."""
        changed = changed or {}
        source: list[Row] = [*corpus.ids("source", pairs)]
        target: list[Row] = [*corpus.ids("target", pairs)]
        sampling = self.tokenizer.config.sampling > 0
        indices = list(range(len(pairs))) if sampling else list(changed)
        taken = set()
        if indices:
            room = min(self.data.budget // len(pairs) - 1, self.data.max_length)
            texts = self._texts(corpus, pairs, indices, changed)
            drawn = self._drawn(texts, epoch, numbers[indices])
            for index, own_source, own_target in zip(indices, *drawn, strict=True):
                fits = len(own_source) <= room, len(own_target) <= room
                if index in changed and not all(fits):
                    continue
                source[index] = own_source if fits[0] else source[index]
                target[index] = own_target if fits[1] else target[index]
                taken.add(index)
        return Segmented(source, target, frozenset(taken & changed.keys()))

    def lengths(self, corpus: EncodedCorpus, numbers: Indices) -> Lengths:
        """Return the 95th percentile of the lengths of sampled segmentations, within the budget."""
        source, target = corpus.sides_lengths()
        if not self.tokenizer.config.sampling or not len(corpus):
            return source, target
        probe = np.arange(len(numbers[:_PROBE]))
        texts = self._texts(corpus, probe, probe, {})
        drawn = self._drawn(texts, 0, numbers[:_PROBE])
        return self._planned(source, drawn[0]), self._planned(target, drawn[1])

    def _planned(self, best: Lines, drawn: Sequence[Row]) -> Lines:
        longer = np.array([len(ids) for ids in drawn]) / best[: len(drawn)]
        planned = np.ceil(best * float(np.quantile(longer, 0.95)))
        return np.maximum(best, np.minimum(planned, self.data.budget - 1)).astype(np.int32)

    def _texts(
        self,
        corpus: EncodedCorpus,
        pairs: Indices,
        indices: Sequence[int] | Indices,
        changed: Mapping[int, Linked],
    ) -> list[Pair]:
        if len(changed) == len(indices):
            return [changed[index].pair for index in indices]
        clean = zip(*(corpus.texts(side, pairs[indices]) for side in SIDES), strict=True)
        return [
            changed[index].pair if index in changed else pair
            for index, pair in zip(indices, clean, strict=True)
        ]

    def _drawn(self, texts: Sequence[Pair], epoch: int, numbers: Indices) -> list[list[list[int]]]:
        if not self.tokenizer.config.sampling:
            return [list(side) for side in zip(*self.tokenizer.encode_pairs(texts), strict=True)]
        sides = zip(*texts, strict=True)
        samplers = (self.tokenizer.sample_source, self.tokenizer.sample_target)
        purposes = (SOURCE_SEGMENTATION, TARGET_SEGMENTATION)
        return [
            sample(side, pair_seeds(self.data.seed, epoch, numbers, purpose).tolist())
            for side, sample, purpose in zip(sides, samplers, purposes, strict=True)
        ]


class BatchDataset(PlannedDataset[Batch]):
    """Makes batches of an encoded corpus."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        pairs: Int[np.ndarray, " pair"],
        sampler: SegmentationSampler,
        *,
        links: bool = False,
        augmentation: AugmentationConfig | None = None,
    ) -> None:
        """Serve pairs by their indices in ``pairs``: all pairs, if anything is drawn for them."""
        self._corpus, self._pairs, self._sampler = corpus, pairs, sampler
        self._spelling = self._augmented = None
        if augmentation is not None and augmentation.active:
            seed = sampler.data.seed
            # Threads of SentencePiece cost more than they save on a part of a batch.
            self._sampler = replace(sampler, tokenizer=sampler.tokenizer.in_one_thread())
            self._augmented = AugmentedCorpus(corpus, augmentation, seed, links=links)
        if links:
            tokenizer = sampler.tokenizer
            source = tokenizer.source_subwords(range(tokenizer.source_vocab_size))
            self._spelling = source, tokenizer.subwords(range(tokenizer.target_vocab_size))

    def __getitem__(self, key: BatchKey) -> Batch:
        pairs = self._pairs[key.pairs]
        changed = {} if self._augmented is None else self._augmented.changed(pairs, key.epoch)
        found = self._sampler.ids(self._corpus, pairs, key.epoch, pairs, changed)
        if self._spelling is None:
            return collate(found.source, found.target)
        words = [
            [subword_words([spelling[subword] for subword in row]) for row in rows]
            for spelling, rows in zip(self._spelling, found[:2], strict=True)
        ]
        links = self._corpus.links(pairs)
        for index in found.changed:
            own = changed[index].links
            links[index] = links[index] if own is None else own
        return collate(*found[:2], list(map(linked_subwords, links, *words)))

    def lengths(self) -> Lengths:
        source, target = self._sampler.lengths(self._corpus, self._pairs)
        return source[self._pairs], target[self._pairs]

    @property
    def lengths_of_epoch(self) -> EpochLengths | None:
        if self._augmented is None:
            return None
        return partial(
            self._augmented.lengths,
            clean=self.lengths(),
            tokenizer=self._sampler.tokenizer.with_sampling(0.0),
            limit=min(self._sampler.data.max_length, self._sampler.data.budget - 1),
        )
