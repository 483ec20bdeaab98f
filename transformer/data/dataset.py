"""Encoded sentence pairs in an Arrow file, memory-mapped, and the batches made of them.

Knows texts, ids and lengths; does not know where the text came from, nor the order of batches.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from torch.utils.data import Dataset

from transformer.data.batch import Batch, Row, collate
from transformer.data.cache import written_whole
from transformer.data.filters import Filters, first_occurrences
from transformer.data.sampler import BatchKey
from transformer.data.tokenizer import Pairs, Tokenizer

logger = logging.getLogger(__name__)

# Pairs encoded at once, and a record batch of the file: some 10 MB of memory.
_CHUNK = 16_384

Rows = list[tuple[str, str, list[int], list[int]]]


def encode_corpus(
    split: str, pairs: Pairs, tokenizer: Tokenizer, filters: Filters | None, path: Path
) -> None:
    """Cut a corpus into pieces and write texts and ids to an Arrow file, in the order of the text.

    Args:
        split: its name in the log.
        pairs: called for each pass over the (source, target) text.
        tokenizer: cuts both sides.
        filters: which pairs to leave out; None keeps every line.
        path: the file, which appears when it is complete.

    Raises:
        InputError: the text cannot be read, or the filters leave nothing of it.
    """
    from datasets import Features, List, Value
    from datasets.arrow_writer import ArrowWriter

    ids = List(Value("int32"))
    text = Value("string")
    features = Features({"source_text": text, "target_text": text, "source": ids, "target": ids})
    first = first_occurrences(pairs()) if filters is not None and filters.deduplicate else None
    dropped: Counter[str] = Counter()
    read = 0
    with written_whole(path) as part, ArrowWriter(features=features, path=str(part)) as writer:
        for chunk in _chunks(pairs()):
            rows = _encoded(chunk, tokenizer)
            if filters is not None:
                fresh = None if first is None else first[read : read + len(chunk)]
                rows = _filtered(rows, filters, fresh, dropped)
            read += len(chunk)
            if rows:
                columns = zip(features, map(list, zip(*rows, strict=True)), strict=True)
                writer.write_batch(dict(columns), writer_batch_size=_CHUNK)
        writer.finalize()
    if filters is not None:
        logger.info(filters.describe(split, dropped, read))
    else:
        logger.info("%s: %s pairs, every line kept", split, f"{read:,}")


class EncodedCorpus:
    """An Arrow file of `encode_corpus`, read through a memory map: workers share its pages."""

    def __init__(self, path: Path) -> None:
        """Open the file; nothing but the lengths is read yet."""
        from datasets import Dataset as ArrowDataset

        self._path = path
        self._table = ArrowDataset.from_file(str(path)).data
        self._columns = {name: _flat(self._table.column(name)) for name in ("source", "target")}
        chunks = self._table.column("source").chunks
        self._starts = np.cumsum([0, *map(len, chunks)])

    def __reduce__(self) -> tuple[type["EncodedCorpus"], tuple[Path]]:
        """Travel to a spawned worker as a path."""
        return type(self), (self._path,)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def lengths(self, side: str) -> Int[np.ndarray, " pair"]:
        """Return the number of pieces of each pair on a side ("source" or "target")."""
        parts = [np.diff(offsets) for _, offsets in self._columns[side]]
        return np.concatenate(parts or [np.zeros(0, dtype=np.int32)])

    def ids(self, side: str, pairs: Int[np.ndarray, " batch"]) -> list[np.ndarray]:
        """Return the piece ids of some pairs on a side, without bos or eos."""
        column, found = self._columns[side], []
        for chunk, row in self._places(pairs):
            values, offsets = column[chunk]
            found.append(values[offsets[row] : offsets[row + 1]])
        return found

    def texts(self, side: str, pairs: Int[np.ndarray, " batch"]) -> list[str]:
        """Return the raw texts of some pairs on a side."""
        chunks = self._table.column(f"{side}_text").chunks
        return [chunks[chunk][row].as_py() for chunk, row in self._places(pairs)]

    def _places(self, pairs: Int[np.ndarray, " batch"]) -> Iterator[tuple[int, int]]:
        chunk = np.searchsorted(self._starts, pairs, side="right") - 1
        return zip(chunk.tolist(), (pairs - self._starts[chunk]).tolist(), strict=True)


class BatchDataset(Dataset[Batch]):
    """Makes the batch of a key, whole: use it with ``batch_size=None``."""

    def __init__(self, corpus: EncodedCorpus, pairs: Int[np.ndarray, " pair"]) -> None:
        """Serve the given pairs of a corpus; a key's pair i means ``pairs[i]``."""
        self._corpus = corpus
        self._pairs = pairs

    def __getitem__(self, key: BatchKey) -> Batch:
        pairs = self._pairs[key.pairs]
        return collate(self._corpus.ids("source", pairs), self._corpus.ids("target", pairs))

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target that batches are to be planned with."""
        source, target = (self._corpus.lengths(side) for side in ("source", "target"))
        return source[self._pairs], target[self._pairs]


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
    ) -> None:
        """Serve a whole corpus; ``batch_tokens`` and ``max_length`` bound what is drawn."""
        super().__init__(corpus, np.arange(len(corpus)))
        self._state = tokenizer.to_state()
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
        return collate(*sides)

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
            self._tokenizer = Tokenizer.from_state(self._state)
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


def _chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    stream = iter(pairs)
    while chunk := list(islice(stream, _CHUNK)):
        yield chunk


def _encoded(chunk: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> Rows:
    sources, targets = map(list, zip(*chunk, strict=True))
    encoded = tokenizer.encode_source(sources), tokenizer.encode_target(targets)
    return list(zip(sources, targets, *encoded, strict=True))


def _filtered(
    rows: Rows, filters: Filters, first: np.ndarray | None, dropped: Counter[str]
) -> Rows:
    kept = []
    for index, row in enumerate(rows):
        reason = filters.reason(len(row[2]), len(row[3]))
        if reason is None and first is not None and not first[index]:
            reason = "duplicate"
        if reason is None:
            kept.append(row)
        else:
            dropped[reason] += 1
    return kept


def _flat(
    column: Any,
) -> list[tuple[Int[np.ndarray, " piece"], Int[np.ndarray, " row"]]]:
    """Return (values, offsets) of each record batch, without copying the values."""
    return [(chunk.values.to_numpy(), chunk.offsets.to_numpy()) for chunk in column.chunks]
