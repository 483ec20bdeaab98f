"""Encoded sentence pairs in memory-mapped Arrow files, and batches of them.

Segmentations are the best, or sampled in each epoch (Kudo 2018, section 3).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch, Row, collate
from transformer.data.batching.batch_stream import Lengths, PlannedDataset
from transformer.data.batching.token_batches import BatchKey
from transformer.data.config import DataConfig
from transformer.data.encoded.preprocess import SIDES
from transformer.data.text.word_alignment import linked_subwords, subword_words
from transformer.data.tokenization.tokenizer import Tokenizer

Indices = Int[np.ndarray, " batch"]
Lines = Int[np.ndarray, " pair"]

# Pairs whose segmentations are sampled to estimate the lengths of all.
_PROBE = 1_000


class EncodedCorpus:
    """Encoded pairs: shards of `encode_corpus` as memory maps, whose pages the workers share."""

    def __init__(self, *parts: Path | pa.RecordBatch) -> None:
        """Join folders of shards, and batches in memory; InputError if a shard is damaged."""
        self._parts = parts
        self._batches: list[pa.RecordBatch] = []
        for part in parts:
            if isinstance(part, Path):
                shards = map(_mapped, sorted(part.glob("*.arrow")))
                self._batches += chain.from_iterable(shards)
            else:
                self._batches.append(part)
        # Values and offsets, which are not copied.
        self._columns = {
            name: [
                (column.values.to_numpy(), column.offsets.to_numpy())
                for column in (batch.column(name) for batch in self._batches)
            ]
            for name in ("source", "target", "links")
            if all(name in batch.schema.names for batch in self._batches)
        }
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def __reduce__(self) -> tuple[type["EncodedCorpus"], tuple[Path | pa.RecordBatch, ...]]:
        """Pickle the paths and batches, not the memory maps."""
        return type(self), self._parts

    def __len__(self) -> int:
        return int(self._starts[-1])

    def lengths(self, side: str) -> Int[np.ndarray, " pair"]:
        """Return the number of subwords of each pair on a side ("source" or "target")."""
        parts = [np.diff(offsets) for _, offsets in self._columns[side]]
        return np.concatenate(parts or [np.zeros(0, dtype=np.int32)])

    def sides_lengths(self) -> Lengths:
        """Return the number of subwords of each pair on both sides."""
        return self.lengths("source"), self.lengths("target")

    def frequency(self, side: str, token: int) -> int:
        """Return how often a token occurs on a side."""
        return sum(int((values == token).sum()) for values, _ in self._columns[side])

    def ids(self, side: str, pairs: Indices) -> list[np.ndarray]:
        """Return the subword ids of some pairs on a side, without bos or eos."""
        column, found = self._columns[side], []
        for chunk, row in self._indices(pairs):
            values, offsets = column[chunk]
            found.append(values[offsets[row] : offsets[row + 1]])
        return found

    def links(self, pairs: Indices) -> list[np.ndarray]:
        """Return the (source word, target word) links of pairs; KeyError: written without."""
        return [row.reshape(-1, 2) for row in self.ids("links", pairs)]

    def texts(self, side: str, pairs: Indices) -> list[str]:
        """Return the raw texts of pairs on a side; KeyError: written without."""
        name = f"{side}_text"
        return [
            self._batches[batch].column(name)[row].as_py() for batch, row in self._indices(pairs)
        ]

    def select(self, pairs: Indices) -> "EncodedCorpus":
        """Return a copy of some pairs of a corpus that is one batch in memory."""
        (batch,) = self._batches
        return EncodedCorpus(batch.take(pa.array(pairs)))

    def _indices(self, pairs: Indices) -> Iterator[tuple[int, int]]:
        chunk = np.searchsorted(self._starts, pairs, side="right") - 1
        return zip(chunk.tolist(), (pairs - self._starts[chunk]).tolist(), strict=True)


@dataclass(frozen=True)
class SegmentationSampler:
    """Samples a segmentation of each sentence in each epoch, or has the best (``sampling=0``).

    It is a function of (seed, epoch, number of the pair), on any worker or rank.
    """

    tokenizer: Tokenizer
    data: DataConfig

    def ids(
        self, corpus: EncodedCorpus, pairs: Indices, epoch: int, numbers: Indices
    ) -> list[list[Row]]:
        """Return the subword ids of both sides of a batch, whose pairs have these numbers."""
        best: list[list[Row]] = [[*corpus.ids(side, pairs)] for side in SIDES]
        if not self.tokenizer.config.sampling:
            return best
        room = min(self.data.batch_tokens // len(pairs) - 1, self.data.max_length)
        drawn = self._drawn(corpus, pairs, epoch, numbers)
        return [
            [d if len(d) <= room else b for d, b in zip(*rows, strict=True)]
            for rows in zip(drawn, best, strict=True)
        ]

    def lengths(self, corpus: EncodedCorpus, numbers: Indices) -> Lengths:
        """Return the 95th percentile of the lengths of sampled segmentations, within the budget."""
        source, target = corpus.sides_lengths()
        if not self.tokenizer.config.sampling or not len(corpus):
            return source, target
        drawn = self._drawn(corpus, np.arange(len(numbers[:_PROBE])), 0, numbers[:_PROBE])
        return self._planned(source, drawn[0]), self._planned(target, drawn[1])

    def _planned(self, best: Lines, drawn: Sequence[Row]) -> Lines:
        longer = np.array([len(ids) for ids in drawn]) / best[: len(drawn)]
        planned = np.ceil(best * float(np.quantile(longer, 0.95)))
        return np.maximum(best, np.minimum(planned, self.data.batch_tokens - 1)).astype(np.int32)

    def _drawn(
        self, corpus: EncodedCorpus, pairs: Indices, epoch: int, numbers: Indices
    ) -> list[list[list[int]]]:
        samplers = (self.tokenizer.sample_source, self.tokenizer.sample_target)
        return [
            sample(corpus.texts(side, pairs), mixed_seeds(self.data.seed, epoch, numbers, index))
            for index, (side, sample) in enumerate(zip(SIDES, samplers, strict=True))
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
    ) -> None:
        """Serve the pairs of a corpus with these indices; a key has indices in ``pairs``.

        ``pairs`` are all pairs if the sampler draws; ``links`` adds word links to the batches.
        """
        self._corpus, self._pairs, self._sampler = corpus, pairs, sampler
        self._spelling = None
        if links:
            tokenizer = sampler.tokenizer
            source = tokenizer.source_subwords(range(tokenizer.source_vocab_size))
            self._spelling = source, tokenizer.subwords(range(tokenizer.target_vocab_size))

    def __getitem__(self, key: BatchKey) -> Batch:
        pairs = self._pairs[key.pairs]
        sides = self._sampler.ids(self._corpus, pairs, key.epoch, pairs)
        if self._spelling is None:
            return collate(sides[0], sides[1])
        words = [
            [subword_words([spelling[subword] for subword in row]) for row in rows]
            for spelling, rows in zip(self._spelling, sides, strict=True)
        ]
        links = map(linked_subwords, self._corpus.links(pairs), *words)
        return collate(sides[0], sides[1], list(links))

    def lengths(self) -> Lengths:
        """Return the lengths of source and target to plan batches with."""
        source, target = self._sampler.lengths(self._corpus, self._pairs)
        return source[self._pairs], target[self._pairs]


def mixed_seeds(seed: int, epoch: int, pairs: Indices, side: int) -> list[int]:
    """Mix the four numbers into 32 bits a pair, with the finaliser of SplitMix64."""
    mixed = np.full(len(pairs), seed, dtype=np.uint64)
    for number in (np.uint64(epoch), pairs.astype(np.uint64), np.uint64(side)):
        mixed = (mixed ^ number) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    seeds: list[int] = (mixed >> np.uint64(32)).tolist()
    return seeds


def _mapped(path: Path) -> list[pa.RecordBatch]:
    """Return the record batches of a shard without reading them."""
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path}: damaged ({error}); delete {path.parent}, it will be made again"
        ) from error
