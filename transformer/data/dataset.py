"""Encoded sentence pairs in an Arrow file, memory-mapped, and the batches made of them.

Knows texts, ids, links and lengths; does not know where the text came from, nor the order of
batches.
"""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int
from torch.utils.data import Dataset

from transformer.data.batch import Batch, Row, collate
from transformer.data.cache import written_whole
from transformer.data.filters import Filters, first_occurrences
from transformer.data.links import WordLinks, linked_pieces, piece_words
from transformer.data.sampler import BatchKey
from transformer.data.tokenizer import Pairs, Tokenizer

logger = logging.getLogger(__name__)

# Pairs encoded at once, and a record batch of the file: some 10 MB of memory.
_CHUNK = 16_384

# The columns of a pair: both texts, both rows of ids, and its links where they are wanted.
Rows = list[tuple[Any, ...]]

B = TypeVar("B")


def encode_corpus(
    split: str,
    pairs: Pairs,
    tokenizer: Tokenizer,
    filters: Filters | None,
    path: Path,
    *,
    links: Callable[[], Iterator[WordLinks]] | None = None,
) -> None:
    """Cut a corpus into pieces and write texts and ids to an Arrow file, in the order of the text.

    Args:
        split: its name in the log.
        pairs: called for each pass over the (source, target) text.
        tokenizer: cuts both sides.
        filters: which pairs to leave out; None keeps every line.
        path: the file, which appears when it is complete.
        links: of the words of each pair; the sure ones are written too.

    Raises:
        InputError: text or links cannot be read, or the filters leave nothing of it.
    """
    from datasets import Features, List, Value
    from datasets.arrow_writer import ArrowWriter

    ids = List(Value("int32"))
    text = Value("string")
    columns = {"source_text": text, "target_text": text, "source": ids, "target": ids}
    features = Features(columns if links is None else columns | {"links": ids})
    linked = None if links is None else links()
    first = first_occurrences(pairs()) if filters is not None and filters.deduplicate else None
    dropped: Counter[str] = Counter()
    read = 0
    with written_whole(path) as part, ArrowWriter(features=features, path=str(part)) as writer:
        for chunk in _chunks(pairs()):
            rows = _encoded(chunk, tokenizer)
            if linked is not None:
                rows = [(*row, _flat_links(next(linked))) for row in rows]
            if filters is not None:
                fresh = None if first is None else first[read : read + len(chunk)]
                rows = _filtered(rows, filters, fresh, dropped)
            read += len(chunk)
            if rows:
                filled = zip(features, map(list, zip(*rows, strict=True)), strict=True)
                writer.write_batch(dict(filled), writer_batch_size=_CHUNK)
        if linked is not None:
            next(linked, None)  # here the file of links complains if it has lines left
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
        names = [name for name in ("source", "target", "links") if name in self._table.column_names]
        self._columns = {name: _flat(self._table.column(name)) for name in names}
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
        return self._rows(side, pairs)

    def links(self, pairs: Int[np.ndarray, " batch"]) -> list[np.ndarray]:
        """Return the (source word, target word) links of some pairs, a row each.

        Raises:
            KeyError: the file was written without links.
        """
        return [row.reshape(-1, 2) for row in self._rows("links", pairs)]

    def texts(self, side: str, pairs: Int[np.ndarray, " batch"]) -> list[str]:
        """Return the raw texts of some pairs on a side."""
        chunks = self._table.column(f"{side}_text").chunks
        return [chunks[chunk][row].as_py() for chunk, row in self._places(pairs)]

    def _rows(self, name: str, pairs: Int[np.ndarray, " batch"]) -> list[np.ndarray]:
        column, found = self._columns[name], []
        for chunk, row in self._places(pairs):
            values, offsets = column[chunk]
            found.append(values[offsets[row] : offsets[row + 1]])
        return found

    def _places(self, pairs: Int[np.ndarray, " batch"]) -> Iterator[tuple[int, int]]:
        chunk = np.searchsorted(self._starts, pairs, side="right") - 1
        return zip(chunk.tolist(), (pairs - self._starts[chunk]).tolist(), strict=True)


class PlannedDataset(Dataset[B], ABC):
    """Gives lengths to plan batches with, and makes the batch of a key, whole."""

    @abstractmethod
    def __getitem__(self, key: BatchKey) -> B: ...

    @abstractmethod
    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target that batches are to be planned with."""


class BatchDataset(PlannedDataset[Batch]):
    """Makes the batch of a key, whole: use it with ``batch_size=None``."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        pairs: Int[np.ndarray, " pair"],
        linked_by: Tokenizer | None = None,
    ) -> None:
        """Serve the given pairs of a corpus; a key's pair i means ``pairs[i]``.

        Args:
            corpus: the encoded pairs.
            pairs: places in it.
            linked_by: the tokenizer that cut it, where batches shall carry its word links.
        """
        self._corpus = corpus
        self._pairs = pairs
        self._spelling = None
        if linked_by is not None:
            source = linked_by.source_pieces(range(linked_by.source_vocab_size))
            self._spelling = source, linked_by.pieces(range(linked_by.target_vocab_size))

    def __getitem__(self, key: BatchKey) -> Batch:
        pairs = self._pairs[key.pairs]
        sources, targets = (self._corpus.ids(side, pairs) for side in ("source", "target"))
        return self._batch(pairs, sources, targets)

    def _batch(
        self, pairs: Int[np.ndarray, " batch"], sources: Sequence[Row], targets: Sequence[Row]
    ) -> Batch:
        """Collate pieces; links join words, so that any segmentation of a pair has its own."""
        if self._spelling is None:
            return collate(sources, targets)
        words = [
            [piece_words([spelling[piece] for piece in row]) for row in rows]
            for spelling, rows in zip(self._spelling, (sources, targets), strict=True)
        ]
        return collate(
            sources, targets, list(map(linked_pieces, self._corpus.links(pairs), *words))
        )

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target that batches are to be planned with."""
        source, target = (self._corpus.lengths(side) for side in ("source", "target"))
        return source[self._pairs], target[self._pairs]


def _chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    stream = iter(pairs)
    while chunk := list(islice(stream, _CHUNK)):
        yield chunk


def _encoded(chunk: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> Rows:
    sources, targets = map(list, zip(*chunk, strict=True))
    encoded = tokenizer.encode_source(sources), tokenizer.encode_target(targets)
    return list(zip(sources, targets, *encoded, strict=True))


def _flat_links(links: WordLinks) -> list[int]:
    """Return source and target words by turns."""
    return [word for link in sorted(links.sure) for word in link]


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
