"""Encoded sentence pairs in memory-mapped Arrow files."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from transformer.common.errors import InputError
from transformer.data.batching.batch_sequence import Lengths

Indices = Int[np.ndarray, " batch"]


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
        return type(self), self._parts

    def __len__(self) -> int:
        return int(self._starts[-1])

    def lengths(self, side: str) -> Int[np.ndarray, " pair"]:
        """Return the number of subwords of each pair on a side ("source" or "target")."""
        parts = [np.diff(offsets) for _, offsets in self._columns[side]]
        return np.concatenate(parts or [np.zeros(0, dtype=np.int32)])

    def sides_lengths(self) -> Lengths:
        return self.lengths("source"), self.lengths("target")

    def frequency(self, side: str, token: int) -> int:
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
        columns = [batch.column(f"{side}_text") for batch in self._batches]
        return [columns[batch][row].as_py() for batch, row in self._indices(pairs)]

    def select(self, pairs: Indices) -> "EncodedCorpus":
        """Return a copy of some pairs of a corpus that is one batch in memory."""
        (batch,) = self._batches
        return EncodedCorpus(batch.take(pa.array(pairs)))

    def _indices(self, pairs: Indices) -> Iterator[tuple[int, int]]:
        chunk = np.searchsorted(self._starts, pairs, side="right") - 1
        return zip(chunk.tolist(), (pairs - self._starts[chunk]).tolist(), strict=True)


def _mapped(path: Path) -> list[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path}: damaged ({error}); delete {path.parent}, it will be made again"
        ) from error
