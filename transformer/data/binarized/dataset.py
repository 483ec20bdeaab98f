"""Batches of an encoded corpus, with sampled segmentations and augmented pairs.

What is drawn for a pair is a function of (seed, epoch, number of the pair): it is the same on any
worker or rank. Segmentations are the best, or sampled (Kudo 2018, section 3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from transformer.data.batching.batch import Batch, Row, collate, shaped
from transformer.data.batching.batch_sequence import BatchKey, EpochLengths, Lengths, PlannedDataset
from transformer.data.binarized.corpus import SIDES, EncodedCorpus, Indices
from transformer.data.text.parallel import Pair
from transformer.data.text.word_alignment import linked_subwords
from transformer.data.text_noise import (
    JOINED,
    KINDS,
    UNCHANGED,
    Linked,
    disturbed,
    drawn_kinds,
)
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.data import AugmentationConfig, DataConfig

if TYPE_CHECKING:
    from transformer.data.features.extractor import FeatureExtractor

Lines = Int[np.ndarray, " pair"]


# Pairs whose segmentations are sampled to estimate the lengths of all.
_SAMPLED_PAIRS = 1_000


# Pairs that are changed in each way to estimate the lengths of all.
_CHANGED_PAIRS = 200


SOURCE_SEGMENTATION, TARGET_SEGMENTATION, DISTURBANCE, NEXT_PAIR, NOISE, VECTORS = range(6)
"""Purposes of random numbers."""


def pair_seeds(
    seed: int, epoch: int, pairs: Int[np.ndarray, " pair"], purpose: int
) -> Int[np.ndarray, " pair"]:
    """Mix the four numbers into 32 bits a pair, with the finalizer of SplitMix64."""
    mixed = np.full(len(pairs), seed, dtype=np.uint64)
    for number in (np.uint64(epoch), pairs.astype(np.uint64), np.uint64(purpose)):
        mixed = (mixed ^ number) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(32)).astype(np.int64)


class Segmented(NamedTuple):
    """Subword ids of a batch of pairs."""

    source: list[Row]
    target: list[Row]
    changed: frozenset[int]
    """Rows with a changed pair; a changed pair that is too long is replaced by the clean one."""


@dataclass(frozen=True)
class SegmentationSampler:
    """Samples segmentations of pairs, or takes the best ones without ``tokenizer.sampling``.

    With ``training``, sources of vectors are masked or moved as the settings say.
    """

    tokenizer: Tokenizer
    data: DataConfig
    training: bool = False

    def ids(
        self,
        corpus: EncodedCorpus,
        pairs: Indices,
        epoch: int,
        numbers: Indices,
        changed: Mapping[int, Linked] | None = None,
    ) -> Segmented:
        """Return the ids of pairs; ``numbers`` seed what is drawn, ``changed`` replaces pairs.

        A sampled segmentation or a changed pair that does not fit into the batch is not used.
        """
        changed = changed or {}
        rows = corpus.ids("source", pairs)
        if self._extractor is not None:
            seeds = pair_seeds(self.data.seed, epoch, numbers, VECTORS).tolist()
            rows = [
                self._extractor.augmented(row.astype(np.float32), seed)
                for row, seed in zip(rows, seeds, strict=True)
            ]
        source: list[Row] = [*rows]
        target: list[Row] = [*corpus.ids("target", pairs)]
        sampling = self.tokenizer.config.sampling > 0
        indices = list(range(len(pairs))) if sampling else list(changed)
        used = set()
        if indices:
            limit = min(self.data.budget // len(pairs) - 1, self.data.max_length)
            texts = self._texts(corpus, pairs, indices, changed)
            drawn = self._drawn(texts, epoch, numbers[indices])
            for index, drawn_source, drawn_target in zip(indices, *drawn, strict=True):
                source_fits = len(drawn_source) <= limit
                target_fits = len(drawn_target) <= limit
                if index in changed and not (source_fits and target_fits):
                    continue
                if source_fits:
                    source[index] = drawn_source
                if target_fits:
                    target[index] = drawn_target
                used.add(index)
        return Segmented(source, target, frozenset(used & changed.keys()))

    @cached_property
    def _extractor(self) -> "FeatureExtractor | None":
        """What changes vectors in training, as the settings of the run say; None if nothing is."""
        speech = self.data.speech
        image = self.data.image
        active = speech.time_masks or speech.frequency_masks or image.shift or image.flip
        if not (self.training and self.tokenizer.reads_files and active):
            return None
        from transformer.data.features.extractor import FeatureExtractor

        config = self.tokenizer.vector_source.config
        return FeatureExtractor(replace(config, speech=speech, image=image))

    def lengths(self, corpus: EncodedCorpus, numbers: Indices) -> Lengths:
        """Return the 95th percentile of the lengths of sampled segmentations, within the budget."""
        source, target = corpus.sides_lengths()
        if not self.tokenizer.config.sampling or not len(corpus):
            return source, target
        probe = np.arange(len(numbers[:_SAMPLED_PAIRS]))
        texts = self._texts(corpus, probe, probe, {})
        drawn = self._drawn(texts, 0, numbers[:_SAMPLED_PAIRS])
        return self._planned(source, drawn[0]), self._planned(target, drawn[1])

    def _planned(self, best: Lines, drawn: Sequence[Row]) -> Lines:
        growth = np.array([len(ids) for ids in drawn]) / best[: len(drawn)]
        planned = np.ceil(best * float(np.quantile(growth, 0.95)))
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


class AugmentedCorpus:
    """Changes pairs of a corpus, which has their texts."""

    def __init__(
        self, corpus: EncodedCorpus, config: AugmentationConfig, seed: int, *, links: bool
    ) -> None:
        self._corpus = corpus
        self._config = config
        self._seed = seed
        self._links = links
        # How much longer a changed pair is than the clean one; measured when it is needed.
        self._factors: Float[np.ndarray, "side kind"] | None = None

    def changed(self, pairs: Indices, epoch: int) -> dict[int, Linked]:
        """Return the changed pairs of an epoch, by their index in ``pairs``."""
        seeds = pair_seeds(self._seed, epoch, pairs, DISTURBANCE)
        kinds = drawn_kinds(self._config, seeds)
        indices = np.flatnonzero(kinds != UNCHANGED)
        if not len(indices):
            return {}
        clean = dict(zip(indices.tolist(), self._linked(pairs[indices]), strict=True))
        joined = np.flatnonzero(kinds == JOINED)
        next_pairs = self._linked(self._next(epoch, pairs[joined]))
        following = dict(zip(joined.tolist(), next_pairs, strict=True))
        return {
            index: disturbed(int(kinds[index]), int(seeds[index]), pair, following.get(index, pair))
            for index, pair in clean.items()
        }

    def lengths(self, epoch: int, clean: Lengths, tokenizer: Tokenizer, limit: int) -> Lengths:
        """Estimate the lengths of all pairs in an epoch, from those of the clean pairs.

        A joined pair has the sum; other kinds have the 90th percentile of the factors of a sample.
        A pair that would be longer than the limit has its clean length: it will not be changed.
        """
        pairs = np.arange(len(self._corpus), dtype=np.int32)
        kinds = drawn_kinds(self._config, pair_seeds(self._seed, epoch, pairs, DISTURBANCE))
        if self._factors is None:
            self._factors = self._measured(tokenizer)
        joined = np.flatnonzero(kinds == JOINED)
        following = self._next(epoch, pairs[joined])
        planned = []
        for lengths, side in zip(clean, self._factors, strict=True):
            # UNCHANGED is the index of the last factor, which is 1.
            longer = np.maximum(lengths, np.ceil(lengths * side[kinds])).astype(np.int32)
            longer[joined] = lengths[joined] + lengths[following]
            planned.append(longer)
        fits = np.maximum(*planned) <= limit
        source = np.where(fits, planned[0], clean[0])
        target = np.where(fits, planned[1], clean[1])
        return source, target

    def _measured(self, tokenizer: Tokenizer) -> Float[np.ndarray, "side kind"]:
        factors = np.ones((2, len(KINDS) + 1))
        pairs = np.arange(min(_CHANGED_PAIRS, len(self._corpus)))
        linked = self._linked(pairs)
        clean = [self._corpus.ids(side, pairs) for side in SIDES]
        for kind, name in enumerate(KINDS):
            if kind == JOINED or not getattr(self._config, name):
                continue
            texts = [disturbed(kind, seed, pair, pair).pair for seed, pair in enumerate(linked)]
            changed = zip(*tokenizer.encode_pairs(texts), strict=True)
            for side, (new, old) in enumerate(zip(changed, clean, strict=True)):
                growth = [len(row) / len(ids) for row, ids in zip(new, old, strict=True)]
                factors[side, kind] = np.quantile(growth, 0.9)
        return factors

    def _linked(self, pairs: Indices) -> list[Linked]:
        sources, targets = (self._corpus.texts(side, pairs) for side in SIDES)
        texts = zip(sources, targets, strict=True)
        if not self._links:
            return [Linked(pair) for pair in texts]
        return [Linked(*linked) for linked in zip(texts, self._corpus.links(pairs), strict=True)]

    def _next(self, epoch: int, pairs: Indices) -> Int[np.ndarray, " pair"]:
        drawn = pair_seeds(self._seed, epoch, pairs, NEXT_PAIR)
        return drawn % len(self._corpus)


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
        """Use the pairs of these indices: of all pairs, if anything is drawn for them."""
        self._corpus = corpus
        self._pairs = pairs
        self._sampler = sampler
        self._augmented: AugmentedCorpus | None = None
        self._has_links = links
        if augmentation is not None and augmentation.active:
            # Threads of SentencePiece cost more than they save on a part of a batch.
            self._sampler = replace(sampler, tokenizer=sampler.tokenizer.in_one_thread())
            self._augmented = AugmentedCorpus(corpus, augmentation, sampler.data.seed, links=links)

    def __getitem__(self, key: BatchKey) -> Batch:
        pairs = self._pairs[key.pairs]
        changed = {} if self._augmented is None else self._augmented.changed(pairs, key.epoch)
        source, target, used = self._sampler.ids(self._corpus, pairs, key.epoch, pairs, changed)
        if not self._has_links:
            return shaped(collate(source, target), key.shape)
        links = self._corpus.links(pairs)
        texts = list(zip(*(self._corpus.texts(side, pairs) for side in SIDES), strict=True))
        for index in used:
            texts[index] = changed[index].pair
            changed_links = changed[index].links
            if changed_links is not None:
                links[index] = changed_links
        tokenizer = self._sampler.tokenizer
        source_words, target_words = (
            [words(row, pair[side]) for row, pair in zip(rows, texts, strict=True)]
            for side, words, rows in (
                (0, tokenizer.source_words, source),
                (1, tokenizer.target_words, target),
            )
        )
        alignments = list(map(linked_subwords, links, source_words, target_words))
        return collate(source, target, alignments)

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
