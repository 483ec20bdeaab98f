"""Encoded sentence pairs in memory-mapped Arrow files, and batches of them.

The segmentations are the best, or sampled in each epoch (Kudo 2018, section 3). Does not know who
wrote the files, nor the order of batches.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch, Row, collate
from transformer.data.batching.batch_stream import PlannedDataset
from transformer.data.batching.sampler import BatchKey
from transformer.data.config import DataConfig
from transformer.data.text.word_alignment import linked_subwords, subword_words
from transformer.data.tokenization.tokenizer import Tokenizer


class EncodedCorpus:
    """The shards of `encode_corpus` as memory maps, whose pages the workers share."""

    def __init__(self, *folders: Path) -> None:
        """Open the shards of these folders as maps; raises InputError if one is damaged."""
        self._folders = folders
        shards = [path for folder in folders for path in sorted(folder.glob("*.arrow"))]
        self._batches = [batch for path in shards for batch in _mapped(path)]
        self._columns = {
            name: [_flat(batch.column(name)) for batch in self._batches]
            for name in ("source", "target", "links")
            if all(name in batch.schema.names for batch in self._batches)
        }
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def __reduce__(self) -> tuple[type["EncodedCorpus"], tuple[Path, ...]]:
        """Pickle as paths."""
        return type(self), self._folders

    def __len__(self) -> int:
        return int(self._starts[-1])

    def lengths(self, side: str) -> Int[np.ndarray, " pair"]:
        """Return the number of subwords of each pair on a side ("source" or "target")."""
        parts = [np.diff(offsets) for _, offsets in self._columns[side]]
        return np.concatenate(parts or [np.zeros(0, dtype=np.int32)])

    def frequency(self, side: str, token: int) -> int:
        """Return how often a token occurs on a side."""
        return sum(int((values == token).sum()) for values, _ in self._columns[side])

    def ids(self, side: str, pairs: Int[np.ndarray, " batch"]) -> list[np.ndarray]:
        """Return the subword ids of some pairs on a side, without bos or eos."""
        column, found = self._columns[side], []
        for chunk, row in self._indices(pairs):
            values, offsets = column[chunk]
            found.append(values[offsets[row] : offsets[row + 1]])
        return found

    def links(self, pairs: Int[np.ndarray, " batch"]) -> list[np.ndarray]:
        """Return the (source word, target word) links of pairs; KeyError: written without."""
        return [row.reshape(-1, 2) for row in self.ids("links", pairs)]

    def texts(self, side: str, pairs: Int[np.ndarray, " batch"]) -> list[str]:
        """Return the raw texts of pairs on a side; KeyError: written without."""
        name = f"{side}_text"
        return [
            self._batches[batch].column(name)[row].as_py() for batch, row in self._indices(pairs)
        ]

    def _indices(self, pairs: Int[np.ndarray, " batch"]) -> Iterator[tuple[int, int]]:
        chunk = np.searchsorted(self._starts, pairs, side="right") - 1
        return zip(chunk.tolist(), (pairs - self._starts[chunk]).tolist(), strict=True)


class BatchDataset(PlannedDataset[Batch]):
    """Makes batches of an encoded corpus."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        pairs: Int[np.ndarray, " pair"],
        linked_by: Tokenizer | None = None,
    ) -> None:
        """Serve the pairs of a corpus with these indices; a key has indices in ``pairs``.

        ``linked_by`` is the tokenizer of the corpus, to add word links to batches; None: no links.
        """
        self._corpus = corpus
        self._pairs = pairs
        self._spelling = None
        if linked_by is not None:
            source = linked_by.source_subwords(range(linked_by.source_vocab_size))
            self._spelling = source, linked_by.subwords(range(linked_by.target_vocab_size))

    def __getitem__(self, key: BatchKey) -> Batch:
        pairs = self._pairs[key.pairs]
        sources, targets = (self._corpus.ids(side, pairs) for side in ("source", "target"))
        return self._batch(pairs, sources, targets)

    def _batch(
        self, pairs: Int[np.ndarray, " batch"], sources: Sequence[Row], targets: Sequence[Row]
    ) -> Batch:
        """Collate subwords; word links become links of these subwords."""
        if self._spelling is None:
            return collate(sources, targets)
        words = [
            [subword_words([spelling[subword] for subword in row]) for row in rows]
            for spelling, rows in zip(self._spelling, (sources, targets), strict=True)
        ]
        return collate(
            sources, targets, list(map(linked_subwords, self._corpus.links(pairs), *words))
        )

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target to plan batches with."""
        source, target = (self._corpus.lengths(side) for side in ("source", "target"))
        return source[self._pairs], target[self._pairs]


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


def _mapped(path: Path) -> list[pa.RecordBatch]:
    """Return the record batches of a shard without reading them."""
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path}: damaged ({error}); delete {path.parent}, it will be made again"
        ) from error


def _flat(column: Any) -> tuple[Int[np.ndarray, " subword"], Int[np.ndarray, " row"]]:
    """Return (values, offsets) of a record batch, without copying the values."""
    return column.values.to_numpy(), column.offsets.to_numpy()
