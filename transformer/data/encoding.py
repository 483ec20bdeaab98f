"""Cuts a block of a corpus into pieces and writes it to an Arrow file, a shard of `EncodedCorpus`.

Knows texts, ids and links; does not know where the text came from, who writes which block, nor
batches. The format is that of https://arrow.apache.org/docs/format/Columnar.html.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool

from transformer.data.cache import written_whole
from transformer.data.corpus import Pair
from transformer.data.filters import Filters, Selection
from transformer.data.links import WordLinks
from transformer.data.tokenizer import Tokenizer

# Pairs encoded at once, and a record batch of the file: some 10 MB of memory.
_CHUNK = 16_384

_COUNTS = b"counts"


class Block(NamedTuple):
    """Consecutive pairs of a corpus."""

    number: int
    """Which block it is, from 0."""
    pairs: list[Pair]
    """Source and target texts."""
    links: list[WordLinks] | None
    """Those of each pair, where they are wanted."""
    first: Bool[np.ndarray, " pair"] | None
    """Whether each pair is the first of its like, where duplicates are left out."""


@dataclass(frozen=True)
class ShardWriter:
    """Writes blocks to a folder, each as a file that is there whole or not at all."""

    folder: Path
    """Where the shards go."""
    tokenizer: Tokenizer
    """Cuts both sides."""
    filters: Filters | None
    """Which pairs to leave out; None keeps every line."""
    texts: bool
    """Whether the raw text is written too, which only subword sampling reads."""

    def path(self, number: int) -> Path:
        """Return the file of a block."""
        return self.folder / f"{number:05d}.arrow"

    def write(self, block: Block) -> None:
        """Cut a block and write what is kept of it; the same block gives the same bytes.

        Raises:
            NoSpaceLeft: the disk is full.
        """
        selection = Selection(self.filters, block.first)
        tables = [
            self._table(block, start, selection)
            for start in range(0, max(len(block.pairs), 1), _CHUNK)
        ]
        counts = json.dumps({"read": selection.read, "dropped": selection.dropped})
        schema = tables[0].schema.with_metadata({_COUNTS: counts})
        with (
            written_whole(self.path(block.number)) as part,
            pa.OSFile(str(part), "wb") as sink,
            pa.ipc.new_file(sink, schema) as writer,
        ):
            for table in tables:
                writer.write_batch(table)

    def _table(self, block: Block, start: int, selection: Selection) -> pa.RecordBatch:
        pairs = block.pairs[start : start + _CHUNK]
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        source, target = (
            self.tokenizer.encode_source(sources),
            self.tokenizer.encode_target(targets),
        )
        kept = [
            place
            for place, ids in enumerate(zip(source, target, strict=True))
            if selection.keeps(*map(len, ids))
        ]
        columns: dict[str, Any] = {
            "source": _lists([source[place] for place in kept]),
            "target": _lists([target[place] for place in kept]),
        }
        if self.texts:
            columns["source_text"] = pa.array([sources[place] for place in kept], pa.string())
            columns["target_text"] = pa.array([targets[place] for place in kept], pa.string())
        if block.links is not None:
            columns["links"] = _lists([_flat(block.links[start + place]) for place in kept])
        return pa.RecordBatch.from_pydict(columns)


def counts_of(shards: Iterable[Path]) -> tuple[int, Counter[str]]:
    """Return how many pairs were read for some shards, and why how many were left out."""
    read, dropped = 0, Counter[str]()
    for shard in shards:
        with pa.memory_map(str(shard)) as file:
            counts = json.loads(pa.ipc.open_file(file).schema.metadata[_COUNTS])
        read += counts["read"]
        dropped.update(counts["dropped"])
    return read, dropped


def _lists(rows: list[list[int]]) -> pa.ListArray:
    """Return rows of numbers as Arrow keeps them: all values, and where each row begins."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(offsets[-1]))
    return pa.ListArray.from_arrays(offsets, values)


def _flat(links: WordLinks) -> list[int]:
    """Return source and target words by turns."""
    return [word for link in sorted(links.sure) for word in link]
