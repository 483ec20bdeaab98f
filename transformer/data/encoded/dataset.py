"""Encoded sentence pairs in Arrow files, memory-mapped, and the batches made of them.

Knows texts, ids, links and lengths; does not know how they came into the file, nor the order of
batches.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch, Row, collate
from transformer.data.batching.keyed_dataset import PlannedDataset
from transformer.data.batching.sampler import BatchKey
from transformer.data.text.word_alignment import linked_subwords, subword_words
from transformer.data.tokenization.tokenizer import Tokenizer


class EncodedCorpus:
    """The shards of `encode_corpus`, read through memory maps: workers share their pages."""

    def __init__(self, *folders: Path) -> None:
        """Open the shards in a folder, or in several as one; nothing but the lengths is read yet.

        Raises:
            InputError: a shard is damaged.
        """
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
        """Travel to a spawned worker as paths."""
        return type(self), self._folders

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
        """Return the raw texts of some pairs on a side.

        Raises:
            KeyError: the file was written without texts.
        """
        name = f"{side}_text"
        return [
            self._batches[batch].column(name)[row].as_py() for batch, row in self._indices(pairs)
        ]

    def _rows(self, name: str, pairs: Int[np.ndarray, " batch"]) -> list[np.ndarray]:
        column, found = self._columns[name], []
        for chunk, row in self._indices(pairs):
            values, offsets = column[chunk]
            found.append(values[offsets[row] : offsets[row + 1]])
        return found

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
            source = linked_by.source_subwords(range(linked_by.source_vocab_size))
            self._spelling = source, linked_by.subwords(range(linked_by.target_vocab_size))

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
            [subword_words([spelling[subword] for subword in row]) for row in rows]
            for spelling, rows in zip(self._spelling, (sources, targets), strict=True)
        ]
        return collate(
            sources, targets, list(map(linked_subwords, self._corpus.links(pairs), *words))
        )

    def lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Return the lengths of source and target that batches are to be planned with."""
        source, target = (self._corpus.lengths(side) for side in ("source", "target"))
        return source[self._pairs], target[self._pairs]


def _mapped(path: Path) -> list[pa.RecordBatch]:
    """Return the record batches of a shard, none of which is read yet."""
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path}: damaged ({error}); delete {path.parent}, it will be made anew"
        ) from error


def _flat(column: Any) -> tuple[Int[np.ndarray, " piece"], Int[np.ndarray, " row"]]:
    """Return (values, offsets) of a record batch, without copying the values."""
    return column.values.to_numpy(), column.offsets.to_numpy()
