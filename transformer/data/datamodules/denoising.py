"""Texts with noise as source and target, for pre-training (T5, BART): a function of the seed.

Raffel et al. 2020, section 3.1.4 (spans); Lewis et al. 2020, section 2.2 (infilling, permutation).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch, Row, collate
from transformer.data.batching.batch_sequence import BatchKey, Lengths
from transformer.data.binarized.corpus import EncodedCorpus
from transformer.data.binarized.dataset import NOISE, BatchDataset, SegmentationSampler, pair_seeds
from transformer.data.datamodules.language_modeling import MonolingualData
from transformer.data.text.phrases import SENTENCE_ENDS
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.data import DenoisingConfig
from transformer.settings.tokenizer import SENTINEL

MASK = "<mask>"
"""BART's token for a span of any length; a vocabulary without it has the first sentinel."""


Counts = Int[np.ndarray, " text"]


@dataclass(frozen=True)
class Noise:
    """Makes source and target of a text.

    ``mask`` replaces a span of ``infilling``; ``tags`` is how many tags each text begins with.
    """

    config: DenoisingConfig
    sentinels: tuple[int, ...]
    mask: int
    sentence_ends: frozenset[int]
    tags: int = 0

    @classmethod
    def from_tokenizer(cls, config: DenoisingConfig, tokenizer: Tokenizer) -> "Noise":
        """Find the special tokens; raises InputError if the vocabulary lacks them."""
        names = tokenizer.subwords(range(tokenizer.target_vocab_size))
        ids = {name: number for number, name in enumerate(names)}
        spelled = (SENTINEL.format(number) for number in range(len(ids)))
        sentinels = tuple(ids[name] for name in spelled if name in ids)
        spans = config.objective == "spans"
        if not tokenizer.same_ids or (len(sentinels) < 1 + spans and (spans or MASK not in ids)):
            raise InputError(
                "task=denoising writes sentinels into one vocabulary of both sides; set "
                "tokenizer.sentinels=100 tokenizer.joint=true, or finetune_from= a model with them"
            )
        ends = frozenset(ids[name] for name in names if name.endswith(SENTENCE_ENDS))
        mask = ids[MASK] if MASK in ids else sentinels[0]
        return cls(config, sentinels, mask, ends, tokenizer.tags.given)

    def pair(self, ids: Row, seed: int) -> tuple[Row, Row]:
        """Return source and target of a text that is not empty: a function of text and seed."""
        random = np.random.default_rng(seed)
        whole = [*map(int, ids)]
        tags = whole[: self.tags]
        text = whole[self.tags :]
        if self.config.objective == "infilling":
            return [*tags, *self._infilled(self._permuted(text, random), random)], whole
        source, target = self._spans(text, random)
        return [*tags, *source], [*tags, *target]

    def lengths(self, texts: Counts) -> Lengths:
        """Return the lengths of source and target, at most, of texts of these lengths."""
        if self.config.objective == "infilling":
            return texts, texts
        masked, spans = self._counts(texts - self.tags)
        return texts - masked + spans, masked + spans + 1 + self.tags

    def _counts(self, texts: Counts) -> tuple[Counts, Counts]:
        """Number of masked tokens, and of spans, of texts of these lengths."""
        masked = np.clip(np.rint(texts * self.config.density), 1, texts).astype(np.int32)
        spans = np.rint(masked / self.config.mean_span).astype(np.int32)
        most = np.minimum(masked, texts - masked + 1)
        return masked, np.clip(spans, 1, np.minimum(most, len(self.sentinels) - 1))

    def _spans(self, text: list[int], random: np.random.Generator) -> tuple[Row, Row]:
        masked, spans = (int(count[0]) for count in self._counts(np.array([len(text)])))
        # At least one token between two spans, and none before the first or after the last.
        kept = _parts(len(text) - masked + 2, spans + 1, random) - 1
        kept[1:-1] += 1
        source: list[int] = []
        target: list[int] = []
        position = 0
        lengths = zip(self.sentinels, kept, _parts(masked, spans, random), strict=False)
        for sentinel, before, length in lengths:
            start = position + before
            source += [*text[position:start], sentinel]
            position = start + length
            target += [sentinel, *text[start:position]]
        return [*source, *text[position:]], [*target, self.sentinels[spans]]

    def _infilled(self, text: list[int], random: np.random.Generator) -> list[int]:
        masked = min(len(text), max(1, round(len(text) * self.config.density)))
        # Spans may be empty: then a mask is inserted. There are at most as many spans as tokens in
        # them, so that no source is longer than its text.
        ends = np.minimum(np.cumsum(random.poisson(self.config.mean_span, masked)), masked)
        ends[-1] = masked
        ends = ends[: np.searchsorted(ends, masked) + 1]
        gaps = np.sort(random.integers(0, len(text) - masked + 1, len(ends)))
        source: list[int] = []
        position = removed = 0
        for gap, end in zip(gaps, ends, strict=True):
            source += [*text[position : gap + removed], self.mask]
            position = gap + end
            removed = end
        return [*source, *text[position:]]

    def _permuted(self, text: list[int], random: np.random.Generator) -> list[int]:
        if not self.config.permute:
            return text
        ends = [index for index, token in enumerate(text, 1) if token in self.sentence_ends]
        bounds = dict.fromkeys((0, *ends, len(text)))
        sentences = [text[start:end] for start, end in pairwise(bounds)]
        order = random.permutation(len(sentences))
        return [token for index in order for token in sentences[index]]


def _parts(total: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Divide ``total`` into ``count`` random parts of at least 1; each division is as likely."""
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


class DenoisingDataset(BatchDataset):
    """Batches of texts with noise: a function of (seed, epoch, number of the text)."""

    def __init__(
        self, corpus: EncodedCorpus, pairs: Counts, sampler: SegmentationSampler, noise: Noise
    ) -> None:
        super().__init__(corpus, pairs, sampler)
        self._noise = noise

    def __getitem__(self, key: BatchKey) -> Batch:
        return collate(*zip(*self.rows(key), strict=True))

    def rows(self, key: BatchKey) -> Sequence[tuple[Row, Row]]:
        pairs = self._pairs[key.pairs]
        texts = self._sampler.ids(self._corpus, pairs, key.epoch, pairs).target
        seeds = pair_seeds(self._sampler.data.seed, key.epoch, pairs, NOISE).tolist()
        return list(map(self._noise.pair, texts, seeds))

    def lengths(self) -> Lengths:
        return self._noise.lengths(super().lengths()[-1])


class DenoisingData(MonolingualData):
    """Batches of texts with new noise in each epoch; validation and test have that of epoch 0."""

    @cached_property
    def _training(self) -> DenoisingDataset:
        return self._noisy("train")

    @cached_property
    def _validation(self) -> DenoisingDataset:
        return self._noisy("validation")

    def noisy(self, split: str) -> Sequence[tuple[Row, Row]]:
        """Return source and target of the texts of a split that are not empty, of any length."""
        dataset = self._noisy(split, scored=True)
        return dataset.rows(BatchKey(0, np.arange(len(dataset.lengths()[0]))))

    def _noisy(self, split: str, *, scored: bool = False) -> DenoisingDataset:
        corpus = EncodedCorpus(self._encoded_path(split))
        tokenizer = self.tokenizer if split == "train" else self.tokenizer.with_sampling(0.0)
        if split == "train":
            pairs = np.arange(len(corpus), dtype=np.int32)
        elif scored:
            lengths = corpus.sides_lengths()[-1]
            self._check_positions(lengths.tolist(), lambda index: f"{split}, text {index + 1}")
            pairs = np.flatnonzero(lengths).astype(np.int32)
            if not len(pairs):
                raise InputError(f"{split}: all texts are empty; give another")
        else:
            file = self._split(split).location
            pairs = self._usable(split, file, "texts", corpus.sides_lengths())
        noise = Noise.from_tokenizer(self._data.denoising, tokenizer)
        return DenoisingDataset(corpus, pairs, SegmentationSampler(tokenizer, self._data), noise)
