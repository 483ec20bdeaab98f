"""Encodes a block of a corpus and writes it to an Arrow file, a shard of `EncodedCorpus`."""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool

from transformer.common.files import written_whole
from transformer.data.text.parallel import Pair
from transformer.data.text.training_filters import Filters, Selection
from transformer.data.text.word_alignment import WordLinks
from transformer.data.tokenization.tokenizer import Tokenizer

SIDES = ("source", "target")

# Pairs encoded at once: some 10 MB of memory.
_CHUNK = 16_384
_COUNTS = b"counts"


class Block(NamedTuple):
    """Consecutive pairs of a corpus."""

    number: int
    pairs: list[Pair]
    links: list[WordLinks] | None
    first: Bool[np.ndarray, " pair"] | None


@dataclass(frozen=True)
class ShardWriter:
    """Writes blocks to a folder, each as a file, atomically."""

    folder: Path
    tokenizer: Tokenizer
    filters: Filters | None
    texts: bool
    """Whether the raw text is written too, for subword sampling."""

    def path(self, number: int) -> Path:
        """Return the file of a block."""
        return self.folder / f"{number:05d}.arrow"

    def write(self, block: Block) -> None:
        """Encode a block and write the kept pairs, always as the same bytes; raises NoSpaceLeft."""
        selection = Selection(self.filters, block.first)
        batch, kept = encode(block.pairs, self.tokenizer, selection, texts=self.texts)
        if block.links is not None:
            links = [sorted(block.links[index].sure) for index in kept]
            # (source word, target word), … -> source word, target word, …
            flat = [list(chain.from_iterable(each)) for each in links]
            batch = batch.append_column("links", _lists(flat))
        counts = json.dumps({"read": selection.read, "dropped": selection.dropped})
        batch = batch.replace_schema_metadata({_COUNTS: counts})
        with (
            written_whole(self.path(block.number)) as part,
            pa.OSFile(str(part), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as writer,
        ):
            writer.write_batch(batch)


def encode(
    pairs: Sequence[Pair], tokenizer: Tokenizer, selection: Selection, *, texts: bool
) -> tuple[pa.RecordBatch, list[int]]:
    """Encode the pairs that are kept, with their ``texts`` or without; return their indices too."""
    kept: list[int] = []
    # Arrays take a tenth of the memory of lists.
    sources: list[array[int]] = []
    targets: list[array[int]] = []
    for start in range(0, len(pairs), _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        for index, (source, target) in enumerate(tokenizer.encode_pairs(chunk), start):
            if selection.keeps(len(source), len(target)):
                kept.append(index)
                sources.append(array("i", source))
                targets.append(array("i", target))
    columns: dict[str, Any] = {"source": _lists(sources), "target": _lists(targets)}
    for number, side in enumerate(SIDES if texts else ()):
        columns[f"{side}_text"] = pa.array([pairs[index][number] for index in kept], pa.string())
    return pa.RecordBatch.from_pydict(columns), kept


def count_subwords(shards: Iterable[Path]) -> tuple[int, Counter[str]]:
    """Return the number of pairs read for some shards, and of those left out by reason."""
    read, dropped = 0, Counter[str]()
    for shard in shards:
        with pa.memory_map(str(shard)) as file:
            counts = json.loads(pa.ipc.open_file(file).schema.metadata[_COUNTS])
        read += counts["read"]
        dropped.update(counts["dropped"])
    return read, dropped


def _lists(rows: Sequence[Sequence[int]]) -> pa.ListArray:
    bounds = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=bounds[1:])
    subwords = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(bounds[-1]))
    return pa.ListArray.from_arrays(bounds, subwords)
