"""Encoded sentence pairs in an Arrow file, memory-mapped, and the batches made of them.

Knows texts, ids, links and lengths; does not know how they came into the file, nor the order of
batches.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int
from torch.utils.data import Dataset

from transformer.data.batch import Batch, Row, collate
from transformer.data.links import linked_pieces, piece_words
from transformer.data.sampler import BatchKey
from transformer.data.tokenizer import Tokenizer

B = TypeVar("B")


class EncodedCorpus:
    """Arrow files of `encode_corpus`, read through a memory map: workers share its pages."""

    def __init__(self, *paths: Path) -> None:
        """Open a file, or several as one; nothing but the lengths is read yet."""
        from datasets import Dataset as ArrowDataset

        self._paths = paths
        self._tables = [ArrowDataset.from_file(str(path)).data for path in paths]
        names = [
            name
            for name in ("source", "target", "links")
            if all(name in table.column_names for table in self._tables)
        ]
        self._columns = {name: _flat(self._chunks(name)) for name in names}
        self._starts = np.cumsum([0, *map(len, self._chunks("source"))])

    def __reduce__(self) -> tuple[type["EncodedCorpus"], tuple[Path, ...]]:
        """Travel to a spawned worker as paths."""
        return type(self), self._paths

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
        chunks = self._chunks(f"{side}_text")
        return [chunks[chunk][row].as_py() for chunk, row in self._places(pairs)]

    def _chunks(self, name: str) -> list[Any]:
        return [chunk for table in self._tables for chunk in table.column(name).chunks]

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

    @property
    def parts(self) -> Sequence["PlannedDataset[B]"]:
        """The corpora, in the order in which keys count them; of one itself."""
        return (self,)

    @abstractmethod
    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target that batches are to be planned with."""


class MixedDataset(PlannedDataset[Batch]):
    """Several corpora; a key says which of them its batch is of."""

    def __init__(self, parts: Sequence[PlannedDataset[Batch]]) -> None:
        """Serve these corpora, in the order in which keys count them."""
        self._parts = tuple(parts)

    @property
    def parts(self) -> Sequence[PlannedDataset[Batch]]:
        """The corpora."""
        return self._parts

    def __getitem__(self, key: BatchKey) -> Batch:
        return self.parts[key.corpus][key]

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of all, corpus after corpus."""
        sources, targets = zip(*(part.lengths() for part in self.parts), strict=True)
        return np.concatenate(sources), np.concatenate(targets)


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


def _flat(
    chunks: Sequence[Any],
) -> list[tuple[Int[np.ndarray, " piece"], Int[np.ndarray, " row"]]]:
    """Return (values, offsets) of each record batch, without copying the values."""
    return [(chunk.values.to_numpy(), chunk.offsets.to_numpy()) for chunk in chunks]
